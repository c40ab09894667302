package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/node/nexthop"
)

// eventLog logs changes of backends. The gateway reports them with its lock held, so they are only
// queued there. The first of each eventWindow are logged one by one. Where there are more, such as at
// the start with 40 000 backends, the rest is counted and logged as one record for each kind.
type eventLog struct {
	log  *slog.Logger
	wake chan struct{}

	mu     sync.Mutex // never held while log is called
	window time.Time  // start of the window that list and more belong to
	room   int        // events that may still be logged one by one in it
	list   []control.Event
	more   map[eventKind]int    // those beyond
	short  []control.SNATStatus // SNAT addresses whose ports are short, to be logged
}

// eventKind is the common part of summed events.
type eventKind struct{ what, why string }

const (
	eventWindow = time.Second
	eventBurst  = 50 // records of one window

	// eventsKept bounds what waits for a log that blocks.
	eventsKept = 20 * eventBurst
)

func newEventLog(log *slog.Logger) *eventLog {
	return &eventLog{log: log, wake: make(chan struct{}, 1), more: map[eventKind]int{}}
}

// add queues an event. It never waits, and may be called with locks held.
func (l *eventLog) add(e control.Event) { l.addAt(time.Now(), e) }

func (l *eventLog) addAt(now time.Time, e control.Event) {
	if !l.log.Enabled(context.Background(), levelOf(e.What)) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.window) >= eventWindow {
		l.window, l.room = now, eventBurst
	}
	if l.room > 0 && len(l.list) < eventsKept {
		l.room--
		l.list = append(l.list, e)
	} else {
		l.more[eventKind{e.What, e.Why}]++
	}
	l.notify()
}

// addPorts queues a warning that source ports are nearly used up, in place of one that was not logged yet. As add.
func (l *eventLog) addPorts(short []control.SNATStatus) {
	l.mu.Lock()
	l.short = short
	l.mu.Unlock()
	l.notify()
}

// notify wakes run.
func (l *eventLog) notify() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake already
	}
}

// run logs what is queued until ctx ends, and then what is left.
func (l *eventLog) run(ctx context.Context) {
	tick := time.NewTicker(eventWindow)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.flush(true)
			return
		case <-l.wake:
			l.flush(false)
		case <-tick.C:
			l.flush(true)
		}
	}
}

// flush logs the events that are queued, and with all the sums of the others.
func (l *eventLog) flush(all bool) {
	l.mu.Lock()
	list, more, short := l.list, map[eventKind]int(nil), l.short
	l.list, l.short = nil, nil
	if all && len(l.more) > 0 {
		more, l.more = l.more, map[eventKind]int{}
	}
	l.mu.Unlock()
	for i := range list {
		l.write(&list[i])
	}
	l.writePorts(short)
	kinds := make([]eventKind, 0, len(more))
	for k := range more {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b eventKind) int { return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.why, b.why)) })
	for _, k := range kinds {
		args := []any{"state", k.what, "more", more[k]}
		if k.why != "" {
			args = append(args, "why", k.why)
		}
		l.log.Log(context.Background(), levelOf(k.what), "backend", args...)
	}
}

// write logs one event.
func (l *eventLog) write(e *control.Event) {
	args := []any{"service", e.Service, "backend", e.Backend, "address", e.Address.String(), "state", e.What}
	if e.What == "weight" {
		args = append(args, "weight", e.Weight)
	}
	if e.Why != "" {
		args = append(args, "why", e.Why)
	}
	if e.Cause != nil {
		args = append(args, "cause", e.Cause.Error())
	}
	l.log.Log(context.Background(), levelOf(e.What), "backend", args...)
}

// mostShort bounds the SNAT addresses that one warning names.
const mostShort = 4

// writePorts logs that source ports are nearly used up.
func (l *eventLog) writePorts(short []control.SNATStatus) {
	for i := range short[:min(len(short), mostShort)] {
		st := &short[i]
		l.log.Warn("ports", "snat", st.Address, "backend", st.MostUsedBy, "used_percent", st.UsedPercent,
			"addresses", len(short), "hint", "add snat addresses or backends")
	}
}

// levelOf returns how loud a change is logged.
func levelOf(what string) slog.Level {
	switch what {
	case nexthop.Ready.String(), nexthop.Unresolved.String():
		return slog.LevelDebug // comes with every start; the health check tells what it means
	case nexthop.NoRoute.String(), "unhealthy", "ejected":
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
