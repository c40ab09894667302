package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// phaseTable has a line for each phase and a column for each event. A dot is a pair that does not occur.
const phaseTable = `
phase       halted  admitted  begun       enqueued  dequeued    opened   sent      failed    answered    switched  complete  refused    finished
unused      .       .         .           .         .           .        .         .         .           .         .         .          .
received    held    .         connecting  .         .           .        .         .         .           tunnel    .         answering  done
held        .       received  .           .         .           .        .         .         .           .         .         answering  done
connecting  .       .         .           queued    .           sending  awaiting  received  .           .         .         answering  done
queued      .       .         .           .         connecting  .        .         received  .           .         .         answering  done
sending     .       .         .           .         .           .        awaiting  received  responding  .         .         answering  done
awaiting    .       .         .           .         .           .        .         received  responding  tunnel    .         answering  done
responding  .       .         .           .         .           .        .         .         .           .         draining  .          done
draining    .       .         .           .         .           .        .         .         .           .         .         .          done
answering   .       .         .           .         .           .        .         .         .           .         .         .          done
tunnel      .       .         .           .         .           .        .         .         .           .         .         .          done
done        .       .         .           .         .           .        .         .         .           .         .         .          .
`

// Every event leads each phase to the one of the table, or fits none and changes nothing.
func TestPhases(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(phaseTable), "\n")
	names := strings.Fields(lines[0])[1:]
	if len(names) != int(events) || len(lines)-1 != int(phases) {
		t.Fatalf("the table has %d events of %d, and %d phases of %d", len(names), events, len(lines)-1, phases)
	}
	for p := range phases {
		row := strings.Fields(lines[p+1])
		if row[0] != p.String() {
			t.Fatalf("line %d is of %s, not of %s", p, row[0], p)
		}
		for ev := range events {
			x := &exchange{w: &Worker{}, phase: p}
			x.on(ev)
			want, misfits := row[ev+1], 0
			if want == "." {
				want, misfits = p.String(), 1
			}
			if x.phase.String() != want || x.w.misfits != misfits {
				t.Errorf("%s in phase %s: %s, want %s; counted %d times", names[ev], p, x.phase, want, x.w.misfits)
			}
		}
	}
}

// Phases in which each side has got a header.
func TestPhasesOfHeaders(t *testing.T) {
	for p := range phases {
		answered := strings.Contains(" responding draining answering tunnel done ", " "+p.String()+" ")
		connected := strings.Contains(" sending awaiting responding draining tunnel ", " "+p.String()+" ")
		if p.answered() != answered || p.connected() != connected {
			t.Errorf("%s: answered %v, connected %v", p, p.answered(), p.connected())
		}
	}
}

// sink is a stream that takes everything.
type sink struct{ events []string }

func (s *sink) Head(m *semantics.Message, e side.Ending) error {
	s.events = append(s.events, fmt.Sprint("head ", m.Status, " ", e))
	return nil
}
func (s *sink) Write(p []byte) int    { return len(p) }
func (s *sink) End([]semantics.Field) { s.events = append(s.events, "end") }
func (s *sink) Pause(bool)            {}
func (s *sink) Cancel(bool)           { s.events = append(s.events, "cancel") }
func (s *sink) Release()              { s.events = append(s.events, "release") }

// A response that is complete with its header stays so when its connection fails before the event of its end: the client keeps it.
func TestACompleteResponseOutlivesItsConnection(t *testing.T) {
	for _, ending := range []side.Ending{side.EndsNow, side.EndsLater} {
		r := newMemRig(t, nil)
		w := r.worker
		front, back := &sink{}, &sink{}
		x := w.newExchange(&clientInfo{at: &listening{w: w, current: &Listener{}}}, &side.Event{
			Stream: front, Ending: side.EndsNow, Message: &semantics.Message{Method: "GET"},
		})
		x.rule, x.pooled = r.rule, r.to
		s := w.newBackConn(backsKey{pool: r.to}, nil)
		x.on(begun)
		x.opened(s, back, side.Caps{})
		x.responseHead(&semantics.Message{Status: 200, ContentLength: -1}, ending)
		want := map[side.Ending]phase{side.EndsNow: draining, side.EndsLater: responding}[ending]
		if x.phase != want {
			t.Errorf("ending %d: phase %s, want %s", ending, x.phase, want)
		}
		x.backFailed(side.ErrTerminated)
		if canceled := slices.Contains(front.events, "cancel"); canceled != (ending == side.EndsLater) || x.phase != done || w.misfits != 0 {
			t.Errorf("ending %d: %v, phase %s", ending, front.events, x.phase)
		}
	}
}
