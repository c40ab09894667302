package proxy

import (
	"strings"
	"testing"
)

// phaseTable has a line for each phase and a column for each event. A dot is a pair that does not occur.
const phaseTable = `
phase       begun       enqueued  dequeued    opened   sent      failed    answered    switched  complete  refused    finished
unused      .           .         .           .        .         .         .           .         .         .          .
received    connecting  .         .           .        .         .         .           .         .         answering  done
connecting  .           queued    .           sending  awaiting  received  .           .         .         answering  done
queued      .           .         connecting  .        .         received  .           .         .         answering  done
sending     .           .         .           .        awaiting  received  responding  .         .         answering  done
awaiting    .           .         .           .        .         received  responding  tunnel    .         answering  done
responding  .           .         .           .        .         .         .           .         draining  .          done
draining    .           .         .           .        .         .         .           .         .         .          done
answering   .           .         .           .        .         .         .           .         .         .          done
tunnel      .           .         .           .        .         .         .           .         .         .          done
done        .           .         .           .        .         .         .           .         .         .          .
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
