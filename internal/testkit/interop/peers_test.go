package interop

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// peer is another implementation of one of the session protocols, in one role.
type peer struct {
	protocol string
	name     string
	role     string // of the peer
	over     transport
	ci       inCI
	run      func(t *testing.T, b *testbed)
}

// transport is what a peer speaks over.
type transport int

const (
	overTCP transport = iota
	overUDP
	overLargeUDP // in packets of 1250 bytes at the least: over the narrow link, whose path carries 1280 bytes for these
)

func (o transport) String() string { return [...]string{"TCP", "UDP", "large UDP"}[o] }

// inCI says where a peer runs without MILLRACE_PEERS. It must be installed there.
type inCI int

const (
	never inCI = iota
	plain      // over the link that loses nothing
	lossy      // over that and the one that does
)

const (
	asServer = "server"
	asClient = "client"
	asProxy  = "proxy" // between a client and our server
)

// peers are the rows of the table, in its order.
func peers() []peer {
	return slices.Concat(tlsPeers(), quicPeers(), http3Peers(), webTransportPeers(), webSocketPeers(), nginxPeers(), chromiumPeers())
}

// TestPeers runs every peer over every link. MILLRACE_PEERS, a folder of programs, has it run the whole (`make interop-peers`); without it the peers
// that CI has run over a stack on AF_XDP, plain and at 2 % loss.
func TestPeers(t *testing.T) {
	whole := os.Getenv("MILLRACE_PEERS") != ""
	results := results{}
	for _, l := range links {
		enough := plain
		switch {
		case whole:
			enough = never
		case l.kernel || l.mtu > 0:
			continue
		case l.impair != "":
			enough = lossy
		}
		t.Run(l.name, func(t *testing.T) {
			for _, over := range []transport{overTCP, overUDP, overLargeUDP} {
				t.Run(over.String(), func(t *testing.T) {
					var b *testbed
					for _, p := range peers() {
						if p.over != over || p.ci < enough {
							continue
						}
						if b == nil {
							b = newTestbed(t, l, over)
						}
						results.run(t, b, p)
					}
				})
			}
		})
	}
	if path := os.Getenv("MILLRACE_PEERS_PAGE"); path != "" {
		if err := results.write(path); err != nil {
			t.Error(err)
		}
	}
}

// results has a verdict for each row, by link.
type results map[string]map[string]string

func (p peer) key() string { return strings.Join([]string{p.protocol, p.name, p.role}, " | ") }

const (
	passed = "pass"
	failed = "FAIL"
	notRun = "not run"
)

// run runs one peer and records its verdict.
func (r results) run(t *testing.T, b *testbed, p peer) {
	verdict := notRun
	oneLevel := strings.NewReplacer("/", "-", "`", "")
	t.Run(oneLevel.Replace(p.protocol)+"/"+oneLevel.Replace(p.name)+"/"+p.role, func(t *testing.T) {
		defer func() {
			switch {
			case t.Failed():
				verdict = failed
			case !t.Skipped():
				verdict = passed
			}
		}()
		p.run(t, b)
	})
	if r[p.key()] == nil {
		r[p.key()] = map[string]string{}
	}
	r[p.key()][b.name] = verdict
}

// The table lies between these lines of the page.
const (
	tableBegin = "<!-- made by make interop-peers -->\n"
	tableEnd   = "<!-- end -->\n"
)

// table returns the table of the page.
func (r results) table() string {
	var b strings.Builder
	head := []string{"protocol", "peer", "its role"}
	for _, l := range links {
		head = append(head, l.name)
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, p := range peers() {
		fmt.Fprintf(&b, "| %s |", p.key())
		for _, l := range links {
			verdict := r[p.key()][l.name]
			if verdict == "" {
				verdict = notRun
			}
			fmt.Fprintf(&b, " %s |", verdict)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// write replaces the table of the page.
func (r results) write(path string) error {
	before, _, after, err := page(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+tableBegin+r.table()+tableEnd+after), 0o644)
}

// page returns what is before, in and behind the table.
func page(path string) (before, table, after string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", "", err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return "", "", "", fmt.Errorf("%s: the lines around the table are missing", path)
	}
	return before, table, after, nil
}

// TestPageOfPeers compares the rows of the page with those of the code: a peer that is added or removed needs a new run.
func TestPageOfPeers(t *testing.T) {
	_, table, _, err := page("../../../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3+len(links) || cells[0] == " protocol " || strings.HasPrefix(cells[0], "-") {
			continue
		}
		have = append(have, strings.TrimSpace(strings.Join(cells[:3], "|")))
		for i, c := range cells[3:] {
			if c = strings.TrimSpace(c); c != passed && c != notRun {
				t.Errorf("%s over %s: %q", have[len(have)-1], links[i].name, c)
			}
		}
	}
	for _, p := range peers() {
		want = append(want, p.key())
	}
	if !slices.Equal(have, want) {
		t.Errorf("the page has the rows\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// deadline is when a connection of a test must be done.
func deadline() time.Time { return time.Now().Add(patience) }
