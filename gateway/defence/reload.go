package defence

import (
	"errors"
	"maps"
	"net/netip"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/gateway/config"
)

// Reload makes the lists those of a configuration, entry by entry: an address in the old lists and the new ones is dropped
// throughout. Verdicts of the operator and the gateway stay. On an error the lists are partly the new ones, and Reload with the
// old configuration restores them.
func (d *Defence) Reload(c *config.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := c.DefenceLists()
	next := make(map[netip.Prefix]config.DefencePrefix, len(now.Prefixes))
	var put []ebpf.Verdict
	for _, e := range now.Prefixes {
		next[e.Prefix] = e
		if was, ok := d.lists[e.Prefix]; !ok || was != e {
			put = append(put, d.listed(&e))
		}
	}
	// The policy comes first: a verdict that ends meanwhile leaves its prefix to the new list, which has it or is about to.
	before := d.policy.Swap(&policy{lists: now, listed: next, max: int64(c.Defence.Max), time: c.Defence.Time})
	// Those that are accepted come first: they are never dropped by a wider prefix meanwhile.
	if err := d.maps.Put(put...); err != nil {
		d.policy.Store(before)
		d.lists = maps.Clone(d.lists) // the policy in force has the map, and Submit reads it
		for p := range next {
			d.lists[p] = config.DefencePrefix{} // the kernel may have it: the next Reload writes or removes it
		}
		return err
	}
	step("listed")
	was := d.lists
	d.lists = next
	err := errors.Join(d.removeLists(was), d.removeRefused())
	if d.syns != c.Defence.SYNRate {
		err = errors.Join(err, d.maps.AssistSYN(uint32(c.Defence.SYNRate)))
		d.syns = c.Defence.SYNRate
	}
	return err
}

// removeLists removes the entries of lists that are not in the present ones.
func (d *Defence) removeLists(was map[netip.Prefix]config.DefencePrefix) (err error) {
	for p := range was {
		if _, stays := d.lists[p]; !stays {
			err = errors.Join(err, d.write(p))
		}
	}
	return err
}

// removeRefused removes the verdicts on sources that are accepted or in a list now.
func (d *Defence) removeRefused() (err error) {
	p := d.policy.Load()
	for e := range d.verdicts.all() {
		if p.allows(e.Prefix) != nil {
			err = errors.Join(err, d.end(e))
		}
	}
	return err
}

// listed returns the verdict of an entry of a list.
func (d *Defence) listed(e *config.DefencePrefix) ebpf.Verdict {
	return ebpf.Verdict{Prefix: e.Prefix, Rule: d.rules.number(e.Rule), Accept: e.Accept, Rate: uint32(e.Packets), Burst: uint32(e.Burst)}
}
