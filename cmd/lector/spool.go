package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"lector/cache"
	"lector/cache/spool"
)

// spoolOff is the --spool that has chunks wait for the store.
const spoolOff = "off"

// leastSpool is the quota of a spool where none is given, unless the model's chunks need more.
const leastSpool = 1 << 30

// spooling is what the flags say of this machine's disk between the model and a store that is far away.
type spooling struct {
	spool string
}

func (f *spooling) flags(fs *pflag.FlagSet) {
	fs.StringVar(&f.spool, "spool", "", "most `bytes` of the data folder's disk for chunks on their way to a store on S3 while the next is read, such as 2G, or off (default: 1G, or two chunks of the model)")
}

// openSpool gives the session a spool when its store is far away. A folder takes chunks as fast as a spool would.
func (s *session) openSpool() error {
	text := s.app.spooling.spool
	if !s.app.far() {
		if text != "" && text != spoolOff {
			return badInput(fmt.Errorf("--spool %s: a store in a folder needs no spool; leave it out, or name a store on S3 with --store", text))
		}
		return nil
	}
	if text == spoolOff {
		return nil
	}
	data, err := s.app.dataFolder()
	if err != nil {
		return err
	}
	opt := spool.Options{Folder: filepath.Join(data, "spool"), Quota: leastSpool, Store: s.space.Store}
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
