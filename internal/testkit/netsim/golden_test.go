package netsim

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/tcp"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

const (
	goldenFile = "testdata/golden.txt"
	goldenRate = 20e6 // bits a second
	goldenTime = 12 * time.Second
	goldenSkip = 2 * time.Second // until flows have found their rate

	// Figures are the same in each run. They may differ by so much between machines, whose floating
	// point rounds differently, before somebody must look: a part of the figure, and Mbit/s.
	goldenPart, goldenLeast = 0.05, 0.1
)

// queueOf returns a queue of so many times the bandwidth-delay product.
func queueOf(rtt time.Duration, times float64) pmd.Queue {
	return pmd.Queue{Bytes: max(int(goldenRate/8*rtt.Seconds()*times), 3*1514)}
}

// bottleneck is a network of senders on the left and receivers on the right of one slow link.
func bottleneck(seed uint64, flows int, rtt time.Duration, loss, ce pmd.Percent, q pmd.Queue) (n *Net, left, right []*Host, slow *Pipe) {
	n = New(seed)
	var a, b []Endpoint
	for range flows {
		x, y := n.Host(HostConfig{TCP: tcp.Config{}}), n.Host(HostConfig{})
		left, right = append(left, x), append(right, y)
		a, b = append(a, x), append(b, y)
	}
	slow, _ = n.Dumbbell(a, b, pmd.Profile{
		Tx: pmd.Impairment{Delay: rtt / 2, Loss: loss, CE: ce, Rate: goldenRate, Queue: q},
		Rx: pmd.Impairment{Delay: rtt / 2},
	})
	return n, left, right, slow
}

// share runs flows of the given algorithms over one bottleneck, and returns the goodput of each in Mbit/s.
func share(t *testing.T, rtt time.Duration, loss pmd.Percent, times float64, ccs ...string) (mbit []float64) {
	return run(t, rtt, loss, 0, times, ccs...)
}

// run does so over a link that marks a part of the packets of flows that use ECN.
func run(t *testing.T, rtt time.Duration, loss, ce pmd.Percent, times float64, ccs ...string) (mbit []float64) {
	ecn := tcp.ECNPassive
	if ce > 0 {
		ecn = tcp.ECNClassic
	}
	n, left, right, _ := bottleneck(1, len(ccs), rtt, loss, ce, queueOf(rtt, times))
	m := n.Monitor()
	var flows []*Flow
	for i, cc := range ccs {
		flows = append(flows, n.Flow(FlowConfig{
			From: left[i], To: right[i], Bytes: 1 << 40, Congestion: cc, Options: tcp.Options{ECN: ecn}, Start: time.Duration(i) * 100 * time.Millisecond,
		}))
	}
	n.Run(goldenTime)
	for _, f := range flows {
		if err := f.Err(); err != nil {
			t.Errorf("%v: %v", ccs, err)
		}
		mbit = append(mbit, f.Goodput(goldenSkip, goldenTime-200*time.Millisecond)/1e6)
	}
	for _, x := range m.Faults {
		t.Error(ccs, x)
	}
	return mbit
}

// jain is the fairness index of Jain, Chiu and Hawe: 1 where all have the same, 1/n where one has all.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

var goldenAlgorithms = []string{"reno", "cubic", "bbr", "dctcp"}

// goldenRow is a line of the table: what was measured, and the figures.
type goldenRow struct {
	name    string
	figures []float64
}

func (r goldenRow) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-44s", r.name)
	for _, v := range r.figures {
		fmt.Fprintf(&b, " %7.2f", v)
	}
	return strings.TrimRight(b.String(), " ")
}

// TestGoldenThroughput compares the throughput of each algorithm over loss, round trip and buffer, and
// how flows share a link, with what it was. After a change that is meant to change it:
//
//	go test ./internal/testkit/netsim -run Golden -update
func TestGoldenThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; run without -short")
	}
	var rows []goldenRow
	for _, loss := range []pmd.Percent{0, 0.1, 1, 3} {
		for _, rtt := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
			for _, times := range []float64{0.2, 1, 4} {
				row := goldenRow{name: fmt.Sprintf("alone: loss %v rtt %v queue %v BDP", loss, rtt, times)}
				for _, cc := range goldenAlgorithms {
					row.figures = append(row.figures, share(t, rtt, loss, times, cc)[0])
				}
				rows = append(rows, row)
			}
		}
	}
	for _, ce := range []pmd.Percent{0.5, 5} {
		row := goldenRow{name: fmt.Sprintf("alone: marks %v rtt 20ms queue 1 BDP", ce)}
		for _, cc := range goldenAlgorithms {
			row.figures = append(row.figures, run(t, 20*time.Millisecond, 0, ce, 1, cc)[0])
		}
		rows = append(rows, row)
	}
	rows = append(rows, fairness(t)...)
	if *update {
		writeGolden(t, rows)
		return
	}
	compareGolden(t, rows)
}

// fairness has two flows share a link: their goodput, and Jain's index.
func fairness(t *testing.T) (rows []goldenRow) {
	pairs := [][]string{{"reno", "reno"}, {"cubic", "cubic"}, {"bbr", "bbr"}, {"cubic", "reno"}, {"bbr", "cubic"}}
	for _, rtt := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond} {
		for _, times := range []float64{1, 4} {
			for _, pair := range pairs {
				x := share(t, rtt, 0, times, pair...)
				rows = append(rows, goldenRow{fmt.Sprintf("share: %s+%s rtt %v queue %v BDP", pair[0], pair[1], rtt, times), append(x, jain(x))})
			}
		}
	}
	return rows
}

const goldenHead = `# Goodput in Mbit/s over a link of 20 Mbit/s, 10 s, one seed: reno cubic bbr dctcp; then pairs of flows: the
# first's, the second's, and Jain's index. Written by: go test ./internal/testkit/netsim -run Golden -update
`

func writeGolden(t *testing.T, rows []goldenRow) {
	var b strings.Builder
	b.WriteString(goldenHead)
	for _, r := range rows {
		fmt.Fprintln(&b, r)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func compareGolden(t *testing.T, rows []goldenRow) {
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	if len(lines) != len(rows) {
		t.Fatalf("%d rows, the table has %d", len(rows), len(lines))
	}
	for i, r := range rows {
		if !r.like(lines[i]) {
			t.Errorf("have %v\nwant %s", r, lines[i])
		}
	}
}

// like reports whether a line of the table is this row, within the tolerance.
func (r goldenRow) like(line string) bool {
	rest, ok := strings.CutPrefix(line, r.name)
	words := strings.Fields(rest)
	if !ok || len(words) != len(r.figures) {
		return false
	}
	for i, w := range words {
		want, err := strconv.ParseFloat(w, 64)
		if d := r.figures[i] - want; err != nil || max(d, -d) > max(goldenLeast, goldenPart*want) {
			return false
		}
	}
	return true
}

// TestThroughputIsWhatTheLinkCarries has bounds that hold whatever the golden table says.
func TestThroughputIsWhatTheLinkCarries(t *testing.T) {
	const wire = 1514.0 / 1448 // of each full segment: headers with timestamps
	for _, cc := range goldenAlgorithms {
		x := share(t, 20*time.Millisecond, 0, 1, cc)[0]
		if most := goldenRate / 1e6 / wire; x > most*1.001 || x < 0.8*most {
			t.Errorf("%s alone: %.2f Mbit/s of %.2f", cc, x, most)
		}
	}
	if x := share(t, 20*time.Millisecond, 0, 1, "cubic", "cubic"); jain(x) < 0.8 {
		t.Errorf("two cubic flows: %.2f, Jain's index %.2f", x, jain(x))
	}
	if bbr, reno := share(t, 40*time.Millisecond, 1, 1, "bbr")[0], share(t, 40*time.Millisecond, 1, 1, "reno")[0]; bbr < 3*reno {
		t.Errorf("1 %% loss, 40 ms: bbr %.2f Mbit/s, reno %.2f", bbr, reno)
	}
}

func TestJainsIndex(t *testing.T) {
	if a, b := jain([]float64{3, 3}), jain([]float64{1, 0}); a != 1 || b != 0.5 {
		t.Error(a, b)
	}
}
