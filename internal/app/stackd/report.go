package stackd

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/app/service"
	"github.com/millrace/millrace/internal/controlsocket"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/tcp"
)

// The control socket speaks JSON over HTTP/1.1:
//
//	GET  /v1/addr     a list of AddrReport
//	GET  /v1/route    a list of RouteReport
//	GET  /v1/neigh    a list of NeighReport
//	GET  /v1/sockets  Sockets; parameters as of Query
//	GET  /v1/stats    Stats
//	POST /v1/reload   read the configuration file again; {}
//	POST /v1/stop     end as by SIGTERM; {}
//
// Success is 200; anything else is an Error. Whoever may open the socket may do all of this; it is made with mode 0600.

// AddrReport is an address of the host.
type AddrReport struct {
	Device    string       `json:"device"`
	MAC       string       `json:"mac"`
	MTU       int          `json:"mtu"`
	Link      string       `json:"link"` // up, down, no carrier, gone
	Address   netip.Prefix `json:"address"`
	Origin    string       `json:"origin"`            // static, router, dhcp, link
	State     string       `json:"state"`             // tentative, preferred, deprecated, duplicate
	Valid     *float64     `json:"valid_seconds"`     // null: for ever
	Preferred *float64     `json:"preferred_seconds"` // the same
}

// RouteReport is a route of the host.
type RouteReport struct {
	To     netip.Prefix `json:"to"`
	Via    *netip.Addr  `json:"via"` // null: on link
	Device string       `json:"device"`
	Metric uint32       `json:"metric"`
	Source *netip.Addr  `json:"source"`
	Origin string       `json:"origin"`
	Reject bool         `json:"reject"`
}

// NeighReport is an entry of the neighbour table.
type NeighReport struct {
	Address netip.Addr `json:"address"`
	Device  string     `json:"device"`
	MAC     string     `json:"mac"` // "" while it is not known
	State   string     `json:"state"`
	Since   float64    `json:"since_seconds"`
	Router  bool       `json:"router"`
}

// SocketReport is a socket of the host.
type SocketReport struct {
	Protocol string         `json:"protocol"` // tcp, udp
	State    string         `json:"state"`    // as ss(8) names it
	Receive  int            `json:"receive_queue"`
	Send     int            `json:"send_queue"`
	Local    netip.AddrPort `json:"local"`
	Remote   netip.AddrPort `json:"remote"` // address and port 0: any
	Loop     int            `json:"loop"`   // -1: all
	Service  string         `json:"service,omitempty"`
	Process  *ProcessReport `json:"process,omitempty"` // that it was opened for; none: the stack's own
	TCP      *TCPReport     `json:"tcp,omitempty"`
}

// ProcessReport is the process that a socket was opened for.
type ProcessReport struct {
	PID     int    `json:"pid"`
	UID     uint32 `json:"uid"`
	Command string `json:"command"`
	Tier    int    `json:"tier"`              // how its bytes reach the stack: 0 by a socket of the kernel, 1 by shared memory
	Seccomp bool   `json:"seccomp,omitempty"` // a supervisor makes its calls (exec --seccomp)
}

// TCPReport holds the fields of ss -i.
type TCPReport struct {
	Congestion  string  `json:"congestion"`
	Cwnd        uint64  `json:"cwnd_bytes"`
	Ssthresh    uint64  `json:"ssthresh_bytes"` // 0: none before the first loss
	RTT         float64 `json:"rtt_ms"`
	RTTVar      float64 `json:"rttvar_ms"`
	MinRTT      float64 `json:"minrtt_ms"`
	RTO         float64 `json:"rto_ms"`
	MSS         int     `json:"mss"`
	PathMTU     int     `json:"pmtu"`
	Acked       uint64  `json:"acked_bytes"`
	Received    uint64  `json:"received_bytes"`
	Retransmits uint64  `json:"retransmits"`
	InFlight    uint64  `json:"in_flight_bytes"`
	Pacing      uint64  `json:"pacing_bytes_per_second"`
	Delivery    uint64  `json:"delivery_bytes_per_second"`
	SendWindow  uint32  `json:"send_window"`
	RecvWindow  uint32  `json:"receive_window"`
	SendScale   uint8   `json:"send_scale"`
	RecvScale   uint8   `json:"receive_scale"`
	Timestamps  bool    `json:"timestamps"`
	SACK        bool    `json:"sack"`
	ECN         bool    `json:"ecn"`
	AccECN      bool    `json:"accecn"`
	CE          uint32  `json:"ce_packets"`

	Recovery      string  `json:"recovery"` // open, disorder, ecn, fast or timeout
	Sent          uint64  `json:"sent_bytes"`
	Retransmitted uint64  `json:"retransmitted_bytes"`
	Unsent        int     `json:"unsent_bytes"`
	SegmentsIn    uint32  `json:"segments_in"`
	SegmentsOut   uint32  `json:"segments_out"`
	OutOfOrder    uint32  `json:"out_of_order_segments"`
	Duplicates    uint32  `json:"dsack_segments"`
	Reorderings   uint32  `json:"reorderings"`
	Timeouts      uint32  `json:"timeouts"`
	DeliveredCE   uint32  `json:"delivered_ce_packets"`
	Busy          float64 `json:"busy_ms"`
	WindowLimited float64 `json:"window_limited_ms"`
	BufferLimited float64 `json:"buffer_limited_ms"`
}

// Sockets are those that a query chose.
type Sockets struct {
	Sockets []SocketReport `json:"sockets"`
	More    int            `json:"more"` // chosen beyond Query.Limit
}

// Stats are the counters of the host since its start.
type Stats struct {
	Version  string              `json:"version"`
	Started  time.Time           `json:"started"`
	Packets  Packets             `json:"packets"`
	TCP      map[string]int64    `json:"tcp"` // fields of tcp.Stats, snake_case
	UDP      UDPStats            `json:"udp"`
	Programs *ShimStats          `json:"programs,omitempty"` // of millrace exec; none where the host serves none
	Devices  []DeviceStats       `json:"devices"`
	Services []ServiceStats      `json:"services"`
	Engine   gpukern.EngineStats `json:"engine"`
}

// ShimStats count the resources of programs of millrace exec.
type ShimStats struct {
	Counters map[string]int64 `json:"counters"` // numbers of shim.Stats, snake_case
	Users    []shim.UserStats `json:"users"`
}

// Packets are those of all loops. At rest Received + Originated = Forwarded + Delivered + the sum of Dropped; what was forwarded
// has been sent.
type Packets struct {
	Received   uint64            `json:"received"`
	Originated uint64            `json:"originated"`
	Forwarded  uint64            `json:"forwarded"`
	Delivered  uint64            `json:"delivered"`
	Dropped    map[string]uint64 `json:"dropped"` // by reason
}

// UDPStats are the counters of udp.Stats, with reasons by name.
type UDPStats struct {
	Received uint64            `json:"received"`
	Queued   uint64            `json:"queued"`
	Sent     uint64            `json:"sent"`
	Lost     uint64            `json:"receive_buffer_errors"` // a socket's queue was full
	Dropped  map[string]uint64 `json:"dropped"`
	Sockets  int               `json:"sockets"`
	Memory   int64             `json:"memory_bytes"`
}

// DeviceStats are the counters of a device, all queues together.
type DeviceStats struct {
	node.DeviceCounters
	Takes Take `json:"takes"`
}

// ServiceStats are the counters of a service.
type ServiceStats struct {
	Service   string `json:"service"`
	Address   string `json:"address"`
	Protocols string `json:"protocols"`
	service.Stats
}

// Query chooses sockets. Its zero value is all of them.
type Query struct {
	Protocol string   // tcp or udp
	Family   int      // 4 or 6
	States   []string // names as ss(8) has them
	Port     uint16   // local or remote
	Limit    int      // 0 is DefaultLimit
}

// DefaultLimit is the number of sockets that are listed at most unless a query says otherwise.
const DefaultLimit = 10000

// States are the states of a socket, as ss(8) names them.
var States = []string{
	"LISTEN", "SYN-SENT", "SYN-RECV", "ESTAB", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT", "UNCONN",
}

// stateNames are those of States that RFC 9293 calls otherwise.
var stateNames = map[tcp.State]string{tcp.StateSynReceived: "SYN-RECV", tcp.StateEstablished: "ESTAB"}

// stateName names a state of TCP as ss(8) does.
func stateName(s tcp.State) string {
	if n := stateNames[s]; n != "" {
		return n
	}
	return s.String()
}

// ParseState reads a state as people write it: established and estab, listening, closed forms of ss(8) too. It returns the states
// that are meant, nil for an unknown word.
func ParseState(word string) []string {
	switch w := strings.ToUpper(strings.ReplaceAll(word, "_", "-")); w {
	case "ALL":
		return States
	case "ESTABLISHED":
		return []string{"ESTAB"}
	case "LISTENING":
		return []string{"LISTEN"}
	case "SYN-RECEIVED":
		return []string{"SYN-RECV"}
	case "CONNECTED":
		return []string{"SYN-SENT", "SYN-RECV", "ESTAB", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT"}
	default:
		for _, s := range States {
			if s == w {
				return []string{s}
			}
		}
		return nil
	}
}

// Values returns the query as parameters of a URL.
func (q Query) Values() url.Values {
	v := url.Values{}
	if q.Protocol != "" {
		v.Set("protocol", q.Protocol)
	}
	for key, n := range map[string]int{"family": q.Family, "port": int(q.Port), "limit": q.Limit} {
		if n != 0 {
			v.Set(key, strconv.Itoa(n))
		}
	}
	if len(q.States) > 0 {
		v.Set("state", strings.Join(q.States, ","))
	}
	return v
}

// ParseQuery is the inverse of Values. It knows no other parameters, and each once.
func ParseQuery(v url.Values) (q Query, err error) {
	for key, list := range v {
		if len(list) != 1 {
			return q, fmt.Errorf("%s is given %d times", key, len(list))
		}
		if err := q.set(key, list[0]); err != nil {
			return q, err
		}
	}
	return q, nil
}

func (q *Query) set(key, s string) error {
	number := func(most int) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("%s is %q: say 1 to %d", key, s, most)
		}
		return n, nil
	}
	var err error
	switch key {
	case "protocol":
		if q.Protocol = s; s != "tcp" && s != "udp" {
			return fmt.Errorf("protocol is %q: say tcp or udp", s)
		}
	case "family":
		if q.Family, err = number(6); err == nil && q.Family != 4 && q.Family != 6 {
			return fmt.Errorf("family is %q: say 4 or 6", s)
		}
	case "port":
		var n int
		n, err = number(65535)
		q.Port = uint16(n)
	case "limit":
		q.Limit, err = number(1 << 20)
	case "state":
		for word := range strings.SplitSeq(s, ",") {
			list := ParseState(word)
			if list == nil {
				return fmt.Errorf("there is no state %q: say %s", word, strings.ToLower(strings.Join(States, ", ")))
			}
			q.States = append(q.States, list...)
		}
	default:
		return fmt.Errorf("there is no parameter %q", key)
	}
	return err
}

// wants reports whether the query chooses s.
func (q *Query) wants(s *SocketReport) bool {
	if q.Protocol != "" && q.Protocol != s.Protocol || q.Port != 0 && q.Port != s.Local.Port() && q.Port != s.Remote.Port() {
		return false
	}
	if a := s.Local.Addr(); q.Family != 0 && !(a.Is6() && a.IsUnspecified()) && a.Is4() != (q.Family == 4) {
		return false
	}
	if len(q.States) == 0 {
		return true
	}
	for _, want := range q.States {
		if want == s.State {
			return true
		}
	}
	return false
}

// Error is the answer to a request that failed.
type Error = controlsocket.Error
