package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"lector/cache"
	"lector/cache/local"
	"lector/cache/spool"
)

// off is the size that switches one of these off.
const off = "off"

// Quotas where none is given: of a spool, unless the model's chunks need more, and of copies.
const (
	leastSpool  = 1 << 30
	usualCopies = 8 << 30
)

// spooling is what the flags say of this machine's disk between the model and a store that is far away.
type spooling struct {
	spool  string
	copies string
	near   bool // this command restores and stores: copies are of use
}

func (f *spooling) flags(fs *pflag.FlagSet) {
	fs.StringVar(&f.spool, "spool", "", "most `bytes` of the data folder's disk for chunks on their way to a store on S3 while the next is read, such as 2G, or off (default: 1G, or two chunks of the model)")
	fs.StringVar(&f.copies, "local-cache", "", "most `bytes` of the data folder's disk for copies of what a store on S3 holds, such as 50G, or off (default: 8G)")
}

// openSpool gives the session a spool unless its store can stage chunks itself, as a folder can that keeps them as they
// are: it takes them as fast as a spool would.
func (s *session) openSpool() error {
	text := s.app.spooling.spool
	if s.space.CanStage() {
		if text != "" && text != off {
			return badInput(fmt.Errorf("--spool %s: a store in a folder needs no spool; leave it out, or name a store on S3 with --store", text))
		}
		return nil
	}
	if text == off {
		return nil
	}
	data, err := s.app.dataFolder()
	if err != nil {
		return err
	}
	opt := spool.Options{Folder: filepath.Join(data, "spool"), Quota: leastSpool, Store: s.space.Store, Private: s.app.trust.sealKey != ""}
	if text != "" {
		if opt.Quota, err = sizeOf("--spool", text); err != nil {
			return err
		}
	}
	need := s.chunkNeed()
	if text == "" {
		opt.Quota = max(opt.Quota, 2*need)
	} else if opt.Quota < need {
		return badInput(fmt.Errorf("--spool %s: one chunk of model %s takes %s of disk; give at least %d, or off to have reading wait for the store",
			text, s.model.engine.Info().Name, size(need), need))
	}
	sp, err := spool.Open(opt)
	if errors.Is(err, spool.ErrOwned) && text == "" {
		s.log.Info("another lector has this data folder's spool: reading waits for the store here")
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: use another --data folder, or --spool off", err)
	}
	s.spool, s.space.Spool = sp, sp
	return nil
}

// nearCopies keeps copies of what a far store holds in the data folder, for commands that restore and store. Verifying
// and carrying snapshots reads the store itself.
func (a *app) nearCopies(store cache.Store) (cache.Store, error) {
	text := a.spooling.copies
	if !a.far() {
		if text != "" && text != off {
			return nil, badInput(fmt.Errorf("--local-cache %s: a store in a folder is near already; leave it out, or name a store on S3 with --store", text))
		}
		return store, nil
	}
	if !a.spooling.near || text == off {
		return store, nil
	}
	data, err := a.dataFolder()
	if err != nil {
		return nil, err
	}
	opt := local.Options{Folder: filepath.Join(data, "copies"), Quota: usualCopies, Store: store}
	if text != "" {
		if opt.Quota, err = sizeOf("--local-cache", text); err != nil {
			return nil, err
		}
	}
	s, err := local.Open(opt)
	if err != nil {
		return nil, fmt.Errorf("%w: use another --data folder, or --local-cache off", err)
	}
	a.watched.copies(s)
	return s, nil
}

// far says that the store is not on this machine.
func (a *app) far() bool { return strings.Contains(a.store, "://") }

// chunkNeed is the room that the largest chunk of the model takes in a spool, to the block.
func (s *session) chunkNeed() int64 {
	const slack = 64 << 10 // blocks that are not full
	info := s.model.engine.Info()
	rows := int64(min(s.identity.Grid, info.MaxTokens)) * int64(info.BytesPerToken)
	need := rows + int64(info.FixedBytes)
	return need + (need/cache.MaxBlob+2)*slack
}
