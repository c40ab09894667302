package rolelink

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/metrics"
)

// Status is the role of a gateway, as its status has it.
type Status struct {
	State    role.State `json:"state"`
	Priority uint8      `json:"priority"`
	Preempt  bool       `json:"preempt"`
	Term     uint64     `json:"term"`    // counts take-overs of both gateways
	Changes  uint64     `json:"changes"` // of the state
	Last     Change     `json:"last_change"`
	Lease    float64    `json:"lease_seconds"`         // the longer of both
	Left     float64    `json:"left_seconds"`          // standby: of the peer's lease; active: for which it answers without running
	Able     bool       `json:"able"`                  // all devices have a link
	CutOff   bool       `json:"cut_off"`               // watched addresses do not answer any more
	Reaches  bool       `json:"reaches"`               // one of them answers
	Held     bool       `json:"held"`                  // an operator wants the peer to be active
	HeldOff  bool       `json:"held_off"`              // another host answers, or with rivalled asks, so that this gateway does not become active
	Rivalled bool       `json:"rivalled"`              // no host answers, but a host asks for an address as well, or another gateway claims one
	By       string     `json:"answered_by,omitempty"` // or asked by
	Split    bool       `json:"split_brain"`           // another one answers beside this gateway, now
	Splits   uint64     `json:"split_brains"`

	Peer  Peer         `json:"peer"`
	Paths []PathStatus `json:"paths"`

	Sent     uint64 `json:"sent_messages"`
	Received uint64 `json:"received_messages"`
	Rejected uint64 `json:"rejected_messages"` // malformed, or of another key
	Probes   uint64 `json:"probes"`            // questions to the hosts of links
	Rivals   uint64 `json:"rival_probes"`      // such questions of other hosts, while this gateway was probing
	Asks     int    `json:"probed_addresses"`  // addresses of each; with 0 a cut network looks like a dead peer
	Differ   bool   `json:"addresses_differ"`  // the files of the gateways have different service or SNAT addresses
}

// Change is the last change of the state.
type Change struct {
	From role.State `json:"from"`
	To   role.State `json:"to"`
	Why  string     `json:"why"`
	At   time.Time  `json:"at"`
}

// Peer is the other gateway, as this one has heard it last.
type Peer struct {
	Heard     bool       `json:"heard"` // within the lease
	State     role.State `json:"state"`
	Priority  uint8      `json:"priority"`
	Able      bool       `json:"able"`
	CutOff    bool       `json:"cut_off"`
	Reaches   bool       `json:"reaches"`
	Synced    bool       `json:"synced"` // it has all connections of this gateway
	Silent    float64    `json:"silent_seconds"`
	SameIndex bool       `json:"same_index"` // both have the same sync.index
}

// PathStatus is a network that messages take.
type PathStatus struct {
	Listen netip.AddrPort `json:"listen"`
	Peer   netip.AddrPort `json:"peer"`
	Up     bool           `json:"up"` // the peer was heard there within the lease
	Failed uint64         `json:"failed_messages"`
	Error  string         `json:"error,omitempty"` // there is no socket yet: retried
}

// Status returns the role.
func (r *Runner) Status() Status {
	r.mu.Lock()
	now := r.cfg.Now()
	p := r.machine.Picture(now)
	at, by := r.last, r.host(&p)
	r.mu.Unlock()
	if !p.Split && !p.HeldOff {
		by = ""
	}
	st := Status{
		State: p.State, Priority: p.Priority, Preempt: p.Preempt, Term: p.Term, Changes: p.Changes,
		Last: Change{p.Last.From, p.Last.To, p.Last.Why.String(), at}, Lease: p.Lease.Seconds(), Left: p.Left.Seconds(), Able: p.Able, CutOff: p.CutOff, Reaches: p.Reaches,
		Held: p.Held, HeldOff: p.HeldOff, Rivalled: p.Rivalled, By: by, Split: p.Split, Splits: p.Splits,
		Peer: Peer{Heard: p.Heard, State: p.Peer.State, Priority: p.Peer.Priority, Able: p.Peer.Able, CutOff: p.Peer.CutOff, Reaches: p.Peer.Reaches, Synced: p.Peer.Synced, SameIndex: p.SameIndex},
		Sent: r.sent.Load(), Received: r.received.Load(), Rejected: r.rejected.Load(), Probes: r.probes.Load(), Asks: int(r.asks.Load()), Differ: p.Differ, Rivals: p.Rivals,
	}
	if p.Peer.Known {
		st.Peer.Silent = now.Sub(p.Peer.Heard).Seconds()
	}
	for _, c := range r.paths {
		st.Paths = append(st.Paths, PathStatus{c.Listen, c.Path.Peer, c.up(p.Lease), c.fails.Load(), c.failure()})
	}
	return st
}

// up reports whether the peer was heard on the path within a time.
func (p *path) up(within time.Duration) bool {
	at := p.heard.Load()
	return at != 0 && time.Since(time.Unix(0, at)) < within
}

// WriteMetrics writes the role.
func (r *Runner) WriteMetrics(w *metrics.Writer) {
	st := r.Status()
	for s := role.Joining; s <= role.Yielding; s++ {
		w.Gauge("millrace_role_state", "1 for the state of this gateway with its peer.", truth(st.State == s), metrics.Label{Name: "state", Value: s.String()})
	}
	w.Gauge("millrace_role_peer_heard", "1 while the other gateway was heard within the lease.", truth(st.Peer.Heard))
	w.Gauge("millrace_role_split_brain", "1 while another one answers for the addresses beside this gateway.", truth(st.Split))
	w.Gauge("millrace_role_held_off", "1 while this gateway does not become active because another host answers for an address, or because one is about to have one.", truth(st.HeldOff))
	w.Gauge("millrace_role_addresses_differ", "1 while the file of the other gateway has other service or SNAT addresses.", truth(st.Differ))
	w.Gauge("millrace_role_able", "1 while all devices have a link.", truth(st.Able))
	w.Gauge("millrace_role_cut_off", "1 while the addresses of sync.role.watch do not answer any more.", truth(st.CutOff))
	w.Counter("millrace_role_changes_total", "Changes of the state.", st.Changes)
	w.Counter("millrace_role_split_brains_total", "Times that two were active.", st.Splits)
	w.Counter("millrace_role_rival_probes_total", "Questions of other hosts for the addresses, without a sender's, while this gateway was probing.", st.Rivals)
	w.Counter("millrace_role_rejected_messages_total", "Messages at the port of the role that are malformed, or of another key.", st.Rejected)
	for _, p := range st.Paths {
		w.Gauge("millrace_role_path_up", "1 while the other gateway was heard on the path within the lease.", truth(p.Up), metrics.Label{Name: "peer", Value: p.Peer.String()})
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
