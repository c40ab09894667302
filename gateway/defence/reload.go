package defence

import (
	"errors"
	"net/netip"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/gateway/config"
)

// Reload makes the lists those of a configuration, entry by entry: an address in the old lists and the new ones is dropped
// throughout. Verdicts of the operator and the gateway stay. On an error the lists are partly the new ones, and Reload with the
// old configuration restores them.
func (d *Defence) Reload(c *config.Config) error {
	d.noteAll()
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
	// Those that are accepted come first: they are never dropped by a wider prefix meanwhile.
	if err := d.maps.Put(put...); err != nil {
		return err
	}
	err := d.removeLists(next)
	for p := range next { // what a list says has taken the place of a verdict
		if _, ok := d.verdicts[p]; ok {
			delete(d.verdicts, p)
			d.entered.Add(-1)
		}
	}
	d.lists = next
	d.policy.Store(&policy{lists: now, listed: next, max: int64(c.Defence.Max), time: c.Defence.Time})
	if d.syns != c.Defence.SYNRate {
		err = errors.Join(err, d.maps.AssistSYN(uint32(c.Defence.SYNRate)))
		d.syns = c.Defence.SYNRate
	}
	return errors.Join(err, d.dropAccepted())
}

// removeLists removes the entries of lists that are not in next, unless a verdict has taken their place.
func (d *Defence) removeLists(next map[netip.Prefix]config.DefencePrefix) (err error) {
	for p := range d.lists {
		if _, stays := next[p]; stays {
			continue
		}
		if _, taken := d.verdicts[p]; !taken {
			err = errors.Join(err, d.maps.Remove(p))
		}
	}
	return err
}

// dropAccepted removes the verdicts on sources that are accepted now.
func (d *Defence) dropAccepted() (err error) {
	table := d.policy.Load().lists.Accepted
	for p := range d.verdicts {
		if table.Lookup(p.Addr()) == config.SourceAllow {
			err = errors.Join(err, d.remove(p))
		}
	}
	return err
}

// listed returns the verdict of an entry of a list.
func (d *Defence) listed(e *config.DefencePrefix) ebpf.Verdict {
	return ebpf.Verdict{Prefix: e.Prefix, Rule: d.rules.number(e.Rule), Accept: e.Accept, Rate: uint32(e.Packets), Burst: uint32(e.Burst)}
}
