package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"lector/queue"
	"lector/queue/jetstream"
)

// topFlags say how the dashboard is shown.
type topFlags struct {
	once, asJSON bool
	every, wait  time.Duration
}

func newTop(a *app) *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the workers of a queue, what they work on and what waits",
		Long: "top asks every worker of the queue what it does, again and again: its jobs with their progress, the attempts that ended\n" +
			"last, and what waits in the queue. Who does not answer is not there. q ends it; --once prints it once, as text, as does a pipe.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.top(c.Context(), f) },
	}
	fs := c.Flags()
	fs.BoolVar(&f.once, "once", false, "print once and end")
	fs.BoolVar(&f.asJSON, "json", false, "print once, as JSON")
	fs.DurationVar(&f.every, "every", 2*time.Second, "how often workers are asked")
	fs.DurationVar(&f.wait, "wait", time.Second, "how long to wait for answers")
	return c
}

func (a *app) top(ctx context.Context, f topFlags) error {
	if f.every < 100*time.Millisecond || f.wait < 10*time.Millisecond {
		return badInput(fmt.Errorf("--every %v, --wait %v: at least 100ms and 10ms", f.every, f.wait))
	}
	r := roster{app: a, wait: f.wait}
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() { closeNoted(a, r.closer) }()
	ask := func() (fleet, error) { return r.ask(ctx) }
	if f.once || f.asJSON || !isTerminal(a.out) {
		now, err := ask()
		if err != nil {
			return err
		}
		if f.asJSON {
			return json.NewEncoder(a.out).Encode(append([]queue.WorkerStatus{}, now.workers...))
		}
		_, err = fmt.Fprint(a.out, now.text(0))
		return err
	}
	_, err := tea.NewProgram(dashboard{ask: ask, every: f.every}, tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.out)).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil // a signal ends it as q does
	}
	return err
}

// roster asks the workers of a queue.
type roster struct {
	app    *app
	wait   time.Duration
	queue  *jetstream.Queue
	closer closers
}

func (r *roster) open(ctx context.Context) (err error) {
	r.queue, r.closer, err = r.app.openQueueOnly(ctx, jetstream.Config{Log: func(jetstream.Level, string) {}})
	return err
}

// ask asks them all, at the queue of the next owner where that of the data folder has ended.
func (r *roster) ask(ctx context.Context) (fleet, error) {
	workers, err := r.queue.Workers(ctx, r.wait)
	if r.app.ownerLeft(ctx, err) {
		_ = r.closer.Close() // its connection is gone
		r.closer = nil
		if err = r.open(ctx); err == nil {
			workers, err = r.queue.Workers(ctx, r.wait)
		}
	}
	return fleet{at: time.Now(), workers: workers}, err
}

// isTerminal says that a person watches: in a pipe there is nobody to draw for.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// dashboard is top on a terminal.
type dashboard struct {
	ask    func() (fleet, error)
	every  time.Duration
	now    fleet
	asked  bool
	err    error
	height int
}

// answers are what the workers have said.
type answers struct {
	fleet
	err error
}

// again says that it is time to ask.
type again struct{}

// Init asks for the first time.
func (d dashboard) Init() tea.Cmd { return d.request }

func (d dashboard) request() tea.Msg {
	now, err := d.ask()
	return answers{now, err}
}

// Update hears answers, keys and the clock.
func (d dashboard) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return d, tea.Quit
		}
	case tea.WindowSizeMsg:
		d.height = msg.Height
	case answers:
		d.asked, d.err = true, msg.err
		if msg.err == nil {
			d.now = msg.fleet
		}
		return d, tea.Tick(d.every, func(time.Time) tea.Msg { return again{} })
	case again:
		return d, d.request
	}
	return d, nil
}

// View is the screen.
func (d dashboard) View() tea.View {
	text := "asking the workers ...\n"
	if d.asked {
		text = d.now.text(max(d.height-2, 0))
	}
	if d.err != nil {
		text += "\nthe queue does not answer: " + oneLine(d.err) + "\n"
	}
	v := tea.NewView(text + "\nq ends")
	v.AltScreen = true
	return v
}
