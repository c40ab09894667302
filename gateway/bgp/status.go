package bgp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/metrics"
)

// Status is a picture of a speaker.
type Status struct {
	AS       uint32        `json:"as"`
	RouterID netip.Addr    `json:"router_id"`
	Peers    []PeerStatus  `json:"peers"`
	Routes   []RouteStatus `json:"routes"` // announced, in the order of their prefixes; at most mostRoutes
	More     int           `json:"more_routes,omitempty"`
}

// PeerStatus is the state of the session with a router.
type PeerStatus struct {
	Address      netip.Addr `json:"address"`
	AS           uint32     `json:"as"`
	State        State      `json:"state"`
	Since        time.Time  `json:"since"` // of the state
	RouterID     netip.Addr `json:"router_id"`
	LocalAddress netip.Addr `json:"local_address"`

	// Of the session that is; zero without one.
	Families        []string `json:"families,omitempty"` // that both sides speak
	HoldTime        float64  `json:"hold_seconds"`       // negotiated; 0 is none
	GracefulRestart bool     `json:"graceful_restart"`   // both sides have it
	Prefixes        int      `json:"announced_prefixes"` // to the peer
	Received        int      `json:"received_prefixes"`  // from the peer, which are not used

	Established     uint64 `json:"established"` // sessions
	Lost            uint64 `json:"lost"`        // of them
	Failed          uint64 `json:"failed"`      // dials, and sessions that were not established
	Updates         uint64 `json:"updates_sent"`
	UpdatesReceived uint64 `json:"updates_received"`
	Malformed       uint64 `json:"malformed"` // messages, and attributes
	Refused         uint64 `json:"refused"`   // sessions that ended because the peer announced too much

	LastError   string    `json:"last_error,omitempty"` // of the last session or dial; none while a session is established
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// RouteStatus is an announced route.
type RouteStatus struct {
	Prefix   netip.Prefix `json:"prefix"`
	Shutdown bool         `json:"graceful_shutdown"`
}

// mostRoutes bounds the routes of a status.
const mostRoutes = 256

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) error {
	for v := range states {
		if v.String() == string(b) {
			*s = v
		}
	}
	return nil
}

// Status returns the present state, peers in the order of the configuration.
func (s *Speaker) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{AS: s.cfg.AS, RouterID: s.cfg.RouterID, Peers: []PeerStatus{}, Routes: []RouteStatus{}}
	for i := range s.cfg.Peers {
		p := &s.cfg.Peers[i]
		one := PeerStatus{Address: p.Address, AS: p.AS}
		if x := s.sessions[p.Address]; x != nil {
			one = x.status()
		}
		st.Peers = append(st.Peers, one)
	}
	if rib := s.rib.Load(); rib != nil {
		for p, r := range *rib {
			st.Routes = append(st.Routes, RouteStatus{p, r.Shutdown})
		}
	}
	slices.SortFunc(st.Routes, func(a, b RouteStatus) int { return comparePrefixes(a.Prefix, b.Prefix) })
	st.More = max(0, len(st.Routes)-mostRoutes)
	st.Routes = st.Routes[:len(st.Routes)-st.More]
	return st
}

// WriteMetrics writes the present counts; it is a metrics.Source. Labels are addresses of the configuration.
func (s *Speaker) WriteMetrics(w *metrics.Writer) {
	st := s.Status()
	w.Gauge("millrace_bgp_routes", "Routes that are announced to routers.", float64(len(st.Routes)+st.More))
	for i := range st.Peers {
		p := &st.Peers[i]
		peer := metrics.Label{Name: "peer", Value: p.Address.String()}
		up := 0.0
		if p.State == Established {
			up = 1
		}
		w.Gauge("millrace_bgp_session_up", "Whether the session with a router is established.", up, peer)
		w.Gauge("millrace_bgp_announced_prefixes", "Prefixes announced to a router.", float64(p.Prefixes), peer)
		w.Gauge("millrace_bgp_received_prefixes", "Prefixes that a router announces, which are not used.", float64(p.Received), peer)
		w.Counter("millrace_bgp_established_total", "Sessions established with a router.", p.Established, peer)
		w.Counter("millrace_bgp_lost_total", "Established sessions with a router that broke.", p.Lost, peer)
		w.Counter("millrace_bgp_failed_total", "Dials of a router that led to no session.", p.Failed, peer)
		w.Counter("millrace_bgp_malformed_total", "Malformed messages and attributes from a router.", p.Malformed, peer)
		w.Counter("millrace_bgp_refused_total", "Sessions that ended because a router announced more than max_prefixes.", p.Refused, peer)
	}
}
