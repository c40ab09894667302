package shim

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/socket"
)

// counters are those of a Server.
type counters struct {
	requests, malformed            atomic.Uint64
	waited                         atomic.Uint64
	connects, accepts, failures    atomic.Uint64
	looked                         atomic.Uint64 // sockets that requests have looked at beside their own: tests bound it
	pairs                          atomic.Uint64
	toStack, toProgram             atomic.Uint64 // bytes
	datagramsIn, datagramsOut      atomic.Uint64
	datagramsDropped, acceptErrors atomic.Uint64
	descriptors                    atomic.Uint64
	rings, moved, violations       atomic.Uint64
	direct, directBytes            atomic.Uint64
	noRings                        atomic.Uint64
}

// Stats are the counters of a Server since its start, and what it has now.
type Stats struct {
	Channels int // control channels now
	Sockets  int // registered sockets, listeners and connections now
	Files    int // descriptors of the node that programs have now
	MayHave  int // most of these, for all users together

	Requests  uint64
	Waited    uint64 // times that a request waited because its user had used up its share of a loop
	Malformed uint64 // channels that were closed because they sent no request
	Connects  uint64 // connections begun
	Failures  uint64 // of which none came
	Accepts   uint64
	Paired    uint64 // connections between two programs that do not pass through the loop
	Denied    uint64 // requests that the configuration does not permit: ports, operations
	Limited   uint64 // requests beyond a limit

	BytesToStack, BytesToProgram   uint64 // of TCP
	DatagramsSent, DatagramsPassed uint64 // to the network, to programs
	DatagramsDropped               uint64 // from programs: malformed, or not sendable
	AcceptErrors                   uint64 // connections that were reset because no descriptor could be made or passed
	Descriptors                    uint64 // sockets that were closed because the program has sent descriptors through them

	Rings      uint64 // connections whose bytes began to travel by rings
	Moved      uint64 // of these, those that went back to sockets
	NoRings    uint64 // connections of tier 0 because many short ones had come shortly before
	Violations uint64 // those that were reset because the program has written impossible indexes

	Direct      uint64 // of the paired connections, those whose bytes travel by rings from one program to the other
	DirectBytes uint64 // that were read from such rings, as the programs say; 2 GiB within half a second are not seen

	Users []UserStats // by uid
}

// UserStats count what the programs of one uid have now, and what they were refused.
type UserStats struct {
	UID      uint32 `json:"uid"`
	Sockets  int    `json:"sockets"`
	Files    int    `json:"files"` // descriptors of the node
	Channels int    `json:"channels"`
	Rings    int    `json:"rings"`   // pairs of rings in shared memory
	Lookups  int    `json:"lookups"` // host names that are being resolved
	Denied   uint64 `json:"denied"`
	Limited  uint64 `json:"limited"`
}

// stats returns what a user has.
func (u *user) stats() UserStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	return UserStats{
		UID: u.uid, Sockets: u.sockets, Files: u.files, Channels: u.channels, Rings: u.rings, Lookups: u.lookups, Denied: u.denied.Load(), Limited: u.limited.Load(),
	}
}

// WriteMetrics writes the counters, and what each user has.
func (s *Server) WriteMetrics(w *metrics.Writer) {
	stats := s.Stats()
	v := reflect.ValueOf(stats)
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i).Name
		name, help := "millrace_shim_"+socket.SnakeCase(field), "Programs of millrace exec: "+field+" of shim.Stats."
		switch {
		case f.CanUint():
			w.Counter(name+"_total", help, f.Uint())
		case f.CanInt():
			w.Gauge(name, help, float64(f.Int()))
		}
	}
	for _, u := range stats.Users {
		uid := metrics.Label{Name: "uid", Value: strconv.FormatUint(uint64(u.UID), 10)}
		w.Gauge("millrace_shim_user_sockets", "Sockets that the programs of a user have.", float64(u.Sockets), uid)
		w.Gauge("millrace_shim_user_files", "Descriptors of the node that the programs of a user have.", float64(u.Files), uid)
		w.Gauge("millrace_shim_user_channels", "Control channels that the programs of a user have.", float64(u.Channels), uid)
		w.Gauge("millrace_shim_user_rings", "Pairs of rings in shared memory that the programs of a user have.", float64(u.Rings), uid)
		w.Counter("millrace_shim_user_denied_total", "Requests of a user that the configuration does not permit.", u.Denied, uid)
		w.Counter("millrace_shim_user_limited_total", "Requests of a user beyond a limit.", u.Limited, uid)
	}
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	channels, sockets := len(s.channels), len(s.all)
	users := make([]UserStats, 0, len(s.users))
	for _, u := range s.users {
		users = append(users, u.stats())
	}
	s.mu.Unlock()
	slices.SortFunc(users, func(a, b UserStats) int { return cmp.Compare(a.UID, b.UID) })
	var denied, limited uint64
	for _, u := range users {
		denied, limited = denied+u.Denied, limited+u.Limited
	}
	c := &s.stats
	return Stats{
		Channels: channels, Sockets: sockets, Files: int(s.files.Load()), MayHave: int(s.mostFiles.Load()),
		Requests: c.requests.Load(), Waited: c.waited.Load(), Malformed: c.malformed.Load(), Connects: c.connects.Load(), Failures: c.failures.Load(),
		Accepts: c.accepts.Load(), Paired: c.pairs.Load(), Denied: denied, Limited: limited,
		BytesToStack: c.toStack.Load(), BytesToProgram: c.toProgram.Load(),
		DatagramsSent: c.datagramsOut.Load(), DatagramsPassed: c.datagramsIn.Load(),
		DatagramsDropped: c.datagramsDropped.Load(), AcceptErrors: c.acceptErrors.Load(),
		Descriptors: c.descriptors.Load(), Users: users,
		Rings: c.rings.Load(), Moved: c.moved.Load(), Violations: c.violations.Load(), NoRings: c.noRings.Load(),
		Direct: c.direct.Load(), DirectBytes: c.directBytes.Load(),
	}
}
