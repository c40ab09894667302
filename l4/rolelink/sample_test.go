package rolelink

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/millrace/millrace/l4/role"
)

func addrsOf(format string, from, to int) (list []netip.Addr) {
	for i := from; i < to; i++ {
		list = append(list, netip.MustParseAddr(fmt.Sprintf(format, i)))
	}
	return list
}

func link(addrs ...[]netip.Addr) []Link { return []Link{{Device: "a", Addrs: slices.Concat(addrs...)}} }

func shared(a, b []netip.Addr) (n int) {
	for _, addr := range a {
		if slices.Contains(b, addr) {
			n++
		}
	}
	return n
}

// A standby whose file has new addresses at its top asks for addresses that the active gateway has: by its last message, and
// mostly without one.
func TestQuestionsOfAnotherFile(t *testing.T) {
	both := slices.Concat(addrsOf("198.18.0.%d", 100, 104), addrsOf("2001:db8::%x", 1, 5))
	for _, added := range []int{2, 50, 200} {
		mine := slices.Concat(addrsOf("198.18.1.%d", 0, added), addrsOf("2001:db8:1::%x", 0, added), both)
		a := describe(both, link(both))
		ask := questions(mine, a.Sample)
		for _, four := range []bool{true, false} {
			n := 0
			for _, addr := range ask {
				if addr.Is4() == four && slices.Contains(both, addr) {
					n++
				}
			}
			if n == 0 {
				t.Errorf("%d added: the active gateway has none of %v", added, ask)
			}
		}
		if len(ask) > role.MaxSample+2*askedOwn {
			t.Errorf("%d added: %d questions", added, len(ask))
		}
	}
	// Both have a tenth of their own in front.
	first := slices.Concat(addrsOf("198.18.1.%d", 0, 10), addrsOf("198.18.3.%d", 0, 100))
	second := slices.Concat(addrsOf("198.18.2.%d", 0, 10), addrsOf("198.18.3.%d", 0, 100))
	if n := shared(questions(second, nil), first); n == 0 {
		t.Error("without a message: the other has none of the addresses")
	}
	if n := shared(questions(second, describe(first, link(first)).Sample), first); n < 3 {
		t.Errorf("the other has %d of the addresses", n)
	}
	// An address that only the peer has may be another host's here.
	if q := questions(both[:2], describe(first, link(first)).Sample); len(q) != 2 || shared(q, both[:2]) != 2 {
		t.Errorf("it asks for %v", q)
	}
	if q := questions(nil, first); len(q) != 0 {
		t.Errorf("it asks for %v without addresses", q)
	}
}

// The digest does not depend on the order of a file, and the sample has addresses of each network.
func TestDescribe(t *testing.T) {
	all := slices.Concat(addrsOf("198.18.0.%d", 0, 100), addrsOf("2001:db8::%x", 0, 100))
	links := slices.Concat(link(all), link(addrsOf("198.19.0.%d", 7, 9)), link(addrsOf("198.18.7.%d", 1, 2)))
	a := describe(all, links)
	back := slices.Clone(all)
	slices.Reverse(back)
	b := describe(back, links)
	if a.Digest != b.Digest || a.Count != 200 || len(a.Sample) > role.MaxSample {
		t.Errorf("%+v, %+v", a, b)
	}
	for i := range links {
		if shared(a.Sample, links[i].Addrs) == 0 {
			t.Errorf("no address of network %d: %v", i, a.Sample)
		}
	}
	for i := range all {
		less := slices.Delete(slices.Clone(all), i, i+1)
		if c := describe(less, links); c.Digest == a.Digest {
			t.Errorf("without %v: the same digest", all[i])
		}
	}
	many := []Link{}
	for i := range 40 {
		many = append(many, link(addrsOf(fmt.Sprintf("198.18.%d.%%d", i), 0, 9))...)
	}
	if c := describe(all, many); len(c.Sample) != role.MaxSample {
		t.Errorf("%d addresses of many networks", len(c.Sample))
	}
}
