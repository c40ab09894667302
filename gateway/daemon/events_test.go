package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/node/nexthop"
)

// stuck is a log whose records of backends wait for a reader.
type stuck struct {
	slog.Handler
	entered, open chan struct{}
}

func (s stuck) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "backend" {
		select {
		case s.entered <- struct{}{}:
		default:
		}
		<-s.open
	}
	return s.Handler.Handle(ctx, r)
}

// TestALogThatBlocksStopsNothing takes a backend out while the log waits for its reader: requests are
// served, and the events come once the log is read again.
func TestALogThatBlocksStopsNothing(t *testing.T) {
	var log testnet.Log
	handler := stuck{slog.NewTextHandler(&log, nil), make(chan struct{}, 1), make(chan struct{})}
	d, client, _ := controlledWith(t, nexthop.Static{}, slog.New(handler))
	opened := false
	defer func() {
		if !opened {
			close(handler.open) // or the daemon cannot end
		}
	}()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.gate.Drain("web", "b1", control.DrainOptions{Deadline: time.Minute, Force: true}))
	<-handler.entered // the record of the drain, or of the start, hangs
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(d.gate.Undrain("web", "b1"), d.gate.SetWeight("web", "b1", 7, false), func() error {
			st, err := client.Status(ctx, control.Selection{})
			if err == nil && st.Gateway.Services[0].Backends[0].Weight != 7 {
				err = fmt.Errorf("weight %d", st.Gateway.Services[0].Backends[0].Weight)
			}
			return err
		}())
	}()
	select {
	case err := <-done:
		must(err)
	case <-ctx.Done():
		t.Fatal("a gateway whose log is not read does not answer")
	}
	opened = true
	close(handler.open)
	for range 400 {
		if strings.Contains(log.String(), "state=weight weight=7 why=operator") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the events are lost:\n%s", log.String())
}

func TestManyEventsAreSummedUp(t *testing.T) {
	var log testnet.Log
	l := newEventLog(slog.New(slog.NewTextHandler(&log, nil)))
	start := time.Now()
	event := func(i int, what, why string) control.Event {
		return control.Event{Service: "web", Backend: fmt.Sprint("b", i), Address: config.AddrPortsFrom(netip.MustParseAddr("198.18.2.1"), config.PortRange{First: 80, Last: 80}), What: what, Why: why}
	}
	for i := range 1000 {
		l.addAt(start, event(i, "unhealthy", ""))
		l.addAt(start, event(i, nexthop.Ready.String(), "")) // of a level that is not logged: it takes no room
		l.addAt(start, event(i, "active", "configuration"))
	}
	l.flush(false)
	if n := strings.Count(log.String(), "\n"); n != eventBurst {
		t.Fatalf("%d records of one window, want %d", n, eventBurst)
	}
	l.flush(true)
	text := log.String()
	for _, want := range []string{
		"level=INFO msg=backend state=active more=975 why=configuration\n", "level=WARN msg=backend state=unhealthy more=975\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no record %q in the last of\n%s", want, text[strings.Index(text, "b24"):])
		}
	}
	l.addAt(start.Add(eventWindow), event(7, "ejected", ""))
	l.flush(false)
	if !strings.HasSuffix(log.String(), "backend=b7 address=198.18.2.1:80 state=ejected\n") {
		t.Error("an event of the next window is not logged at once")
	}
	for i := range 10 * eventsKept { // a log that blocks for a long time
		l.addAt(start.Add(time.Duration(i)*eventWindow), event(i, "active", ""))
	}
	if len(l.list) != eventsKept {
		t.Errorf("%d events wait, want %d", len(l.list), eventsKept)
	}
}
