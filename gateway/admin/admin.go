// Package admin is the control interface of a running gateway: JSON over HTTP/1.1 on a unix socket. It has the
// messages and the client; gateway/daemon has the server.
//
//	GET  /v1/status?service=&...           Status, of what a gateway.Selection chooses (ParseSelection)
//	GET  /v1/names                         Names: the services
//	GET  /v1/names?service=                Names: the backends of a service, or of all for an empty one
//	GET  /v1/connections?service=&...      a Connection on each line (Query)
//	POST /v1/reload?dry_run=               read the configuration file again: Changes
//	POST /v1/upgrade  Upgrade              replace the process by another one: Upgraded
//	POST /v1/drain    {"service", "backend", "deadline", "force"}   Drain
//	POST /v1/undrain  {"service", "backend"}               Target
//	POST /v1/weight   {"service", "backend", "weight", "force"}     Weight
//	POST /v1/route     workers.Query       which rule a request matches: workers.Explanation
//	GET  /v1/defence                       defence.Status: verdicts in XDP, and what they have dropped
//	POST /v1/defence/add     DefenceVerdict
//	POST /v1/defence/remove  DefenceSource
//	GET  /v1/cache                         workers.CacheStatuses
//	GET  /v1/cache/objects?cache=&prefix=&limit=   workers.CacheList: stored responses
//	POST /v1/cache/purge   CachePurge      remove stored responses: CachePurged
//	GET  /v1/rules?limit=                  inspection.Status: policies, and rules that have matched
//	POST /v1/role     Role                 hand the addresses to the other of two gateways, or take them: rolelink.Status
//	POST /v1/announce                      announce the addresses to the hosts of their links
//	POST /v1/stop                          end as by SIGTERM
//
// Success is 200, with {} where there is nothing to return. Anything else is an Error: 400 an invalid
// request, 404 an unknown service or backend, 409 a change that needs a restart
// or, without "force", leaves a service without a backend, 422 an error
// in the configuration file, 500 what went wrong on the gateway's side. Whoever may open the socket
// may do all of this; it is made with mode 0600.
package admin

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/gateway/bgp"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/controlsocket"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/inspection"
	"github.com/millrace/millrace/l4/rolelink"
	l7control "github.com/millrace/millrace/l7/control"
)

// Target names a backend of a service.
type Target struct {
	Service string `json:"service"`
	Backend string `json:"backend"`
}

// Drain asks a backend to take no new connections, and to lose those it has after a time.
type Drain struct {
	Target
	Deadline Duration `json:"deadline"` // such as "5m"; 0: what the configuration says
	Force    bool     `json:"force"`    // also the last backend that takes connections
}

// Weight sets the weight of a backend.
type Weight struct {
	Target
	Weight *int `json:"weight"` // null: what the configuration says
	Force  bool `json:"force"`  // 0 also for the last backend that takes connections
}

// Upgrade asks for another process in place of the gateway's. Its zero value is the same program with the same file.
type Upgrade struct {
	Binary   string   `json:"binary"`    // path of the program; "" is that of the gateway
	Config   string   `json:"config"`    // path of the configuration file; "" is that of the gateway
	Rollback bool     `json:"rollback"`  // the program and the path of the file that this gateway has replaced
	IfNeeded bool     `json:"if_needed"` // only where a reload does not suffice, which it does otherwise
	Drain    Duration `json:"drain"`     // how long connections may stay with the old process; 0: as long as when it stops
}

// Upgraded is the result.
type Upgraded struct {
	PID      int      `json:"pid"` // of the new process
	Version  string   `json:"version"`
	Drain    Duration `json:"drain"`    // how long the old process goes on at most
	Gap      Duration `json:"gap"`      // how long the devices had no process; 0 without devices
	Reloaded bool     `json:"reloaded"` // it was not needed; the others are zero then
	Changes  Changes  `json:"changes"`  // by the reload

	Connections int            `json:"connections"` // of services, that the new process has
	Lost        map[string]int `json:"lost"`        // those that it has not, by the reason; see the results of sync
}

// Role asks for a state of the role: "active" or "standby".
type Role struct {
	State string `json:"state"`
}

// DefenceSource names a verdict of the defence.
type DefenceSource struct {
	Source netip.Prefix `json:"source"`
}

// DefenceVerdict asks for packets of a source to be dropped or limited in XDP.
type DefenceVerdict struct {
	DefenceSource
	Packets int      `json:"packets_per_second"` // 0: all are dropped
	Burst   int      `json:"burst"`              // packets at once; 0: a tenth of a second's
	Time    Duration `json:"time"`               // 0: the default of the configuration
	Forever bool     `json:"forever"`            // until it is removed or the gateway ends
	Rule    string   `json:"rule"`               // what counts it, behind "operator"; may be empty
}

// CachePurge asks for stored responses to be removed.
type CachePurge struct {
	Cache  string `json:"cache"`  // its name; "" is all caches
	URL    string `json:"url"`    // of a resource, or how those of several begin
	Prefix bool   `json:"prefix"` // the latter; of "" these are all
}

// CachePurged is the result.
type CachePurged struct {
	Purged int `json:"purged"` // responses
}

// Status is a picture of a running gateway.
type Status struct {
	Version string              `json:"version"`
	Config  string              `json:"config"`  // path of the configuration file
	Started time.Time           `json:"started"` // when the process was ready
	Reload  Reload              `json:"reload"`
	Counts  Counts              `json:"counts"`
	Engine  gpukern.EngineStats `json:"engine"` // of all loops
	Gateway l4control.Status    `json:"gateway"`

	Role *rolelink.Status `json:"role,omitempty"` // of two gateways; without one: none

	KernelPrograms KernelPrograms `json:"kernel_programs"` // gateway.kernel has the connections

	Inspection *inspection.Status `json:"inspection,omitempty"` // without policies: none. Of its rules the first 20

	Listeners *l7control.Status `json:"http,omitempty"` // without listeners: none

	BGP *bgp.Status `json:"bgp,omitempty"` // sessions with routers; without bgp: none
}

// KernelPrograms reports whether the kernel forwards established connections, and what its programs have seen.
type KernelPrograms struct {
	On      bool              `json:"on"`            // by a device at least
	Why     string            `json:"why,omitempty"` // not, although the configuration asks for it
	Devices []KernelDevice    `json:"devices,omitempty"`
	Entered uint64            `json:"entered"` // connections
	Slots   int               `json:"slots"`   // places for them
	Packets map[string]uint64 `json:"packets"` // by result: all but "forwarded" and "failed" went to the loops
}

// KernelDevice reports whether a device has a program.
type KernelDevice struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
	Why  string `json:"why,omitempty"` // not
}

// Counts are the packets of all loops since the start. At rest Received + Originated = Forwarded +
// Delivered + Merged + the sum of Dropped.
type Counts struct {
	Received   uint64            `json:"received_packets"`
	Originated uint64            `json:"originated_packets"`
	Forwarded  uint64            `json:"forwarded_packets"`
	Delivered  uint64            `json:"delivered_packets"`
	Merged     uint64            `json:"merged_packets"`  // segments and datagrams joined to the one before, which counts for them
	Dropped    map[string]uint64 `json:"dropped_packets"` // by reason
}

// Reload is the outcome of the last reload; the start counts as one.
type Reload struct {
	Succeeded time.Time `json:"succeeded"`       // when the configuration in use was read
	Failed    bool      `json:"failed"`          // the last one was rejected
	Error     string    `json:"error,omitempty"` // why
}

// Changes lists the changes of a reload. Contents of list files do not count.
type Changes struct {
	Added   int             `json:"added"` // services and backends
	Removed int             `json:"removed"`
	Changed int             `json:"changed"` // keys
	List    []config.Change `json:"changes"` // the first 1000
	More    int             `json:"more_changes"`
	Refused string          `json:"refused,omitempty"` // of a dry run: why a reload would fail
}

// maxChanges bounds Changes.List.
const maxChanges = 1000

// NewChanges counts changes, and keeps the first.
func NewChanges(all []config.Change) Changes {
	c := Changes{List: append([]config.Change{}, all[:min(len(all), maxChanges)]...)} // the others need not stay
	c.More = len(all) - len(c.List)
	for i := range all {
		switch all[i].What {
		case "added":
			c.Added++
		case "removed":
			c.Removed++
		default:
			c.Changed++
		}
	}
	return c
}

// Connection is a connection through the gateway: of a service, or of a client to a listener.
type Connection struct {
	l4control.Connection
	Listener string `json:"listener,omitempty"` // with one, Service is the pool of Backend, and ExpiresSeconds is 0
	Requests int    `json:"requests,omitempty"` // of a listener: so far
	Active   int    `json:"active_requests,omitempty"`
}

// OfListener returns a connection of a listener in this form.
func OfListener(c *l7control.Connection) Connection {
	return Connection{
		Connection: l4control.Connection{
			Loop: c.Loop, Service: c.Pool, Protocol: c.Protocol, Client: c.Client, Address: c.Address, Backend: c.Backend, Target: c.Target, State: c.State,
		},
		Listener: c.Listener, Requests: c.Requests, Active: c.Active,
	}
}

// Query chooses connections. Service is the name of a service, a pool or a listener. Its zero value is all of them.
type Query struct {
	Service, Backend string
	Client           netip.Prefix
	Limit            int // 0 is all
}

// Names are names of the configuration, for completion.
type Names struct {
	Names []string `json:"names"`
}

// SelectionValues returns a selection as parameters of a URL: service, for each one, backend, limit, foremost and summary.
func SelectionValues(s *l4control.Selection) url.Values {
	v := Query{Backend: s.Backend, Limit: s.Limit}.Values()
	if s.Foremost != 0 {
		v.Set("foremost", strconv.Itoa(s.Foremost))
	}
	if s.Summary {
		v.Set("summary", "true")
	}
	if len(s.Services) > 0 {
		v["service"] = s.Services
	}
	return v
}

// ParseSelection is the inverse of SelectionValues. It knows no other parameters.
func ParseSelection(v url.Values) (sel l4control.Selection, err error) {
	one := url.Values{}
	for key, list := range v {
		switch key {
		case "service":
		case "backend", "limit":
			one[key] = list
		case "summary":
			if sel.Summary = slices.Equal(list, []string{"true"}); !sel.Summary {
				return sel, fmt.Errorf("summary is %q: say true", list)
			}
		case "foremost":
			if sel.Foremost, err = strconv.Atoi(list[0]); err != nil || sel.Foremost < 1 || len(list) > 1 {
				return sel, fmt.Errorf("foremost is %q: say 1 or more", list)
			}
		default:
			return sel, fmt.Errorf("there is no parameter %q, only service, backend, limit, foremost and summary", key)
		}
	}
	q, err := ParseQuery(one)
	sel.Services, sel.Backend, sel.Limit = v["service"], q.Backend, q.Limit
	return sel, err
}

// Values returns the query as parameters of a URL.
func (q Query) Values() url.Values {
	v := url.Values{}
	for key, s := range map[string]string{"service": q.Service, "backend": q.Backend} {
		if s != "" {
			v.Set(key, s)
		}
	}
	if q.Client.IsValid() {
		v.Set("client", q.Client.String())
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// ParseQuery is the inverse of Values. It knows no other parameters, and each once.
func ParseQuery(v url.Values) (q Query, err error) {
	for key, list := range v {
		if len(list) != 1 {
			return q, fmt.Errorf("%s is given %d times", key, len(list))
		}
		switch s := list[0]; key {
		case "service":
			q.Service = s
		case "backend":
			q.Backend = s
		case "client":
			q.Client, err = ParseClient(s)
		case "limit":
			if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 0 {
				err = fmt.Errorf("limit is %q: say 1 or more, or 0 for all", s)
			}
		default:
			err = fmt.Errorf("there is no parameter %q, only service, backend, client and limit", key)
		}
		if err != nil {
			return q, err
		}
	}
	return q, nil
}

// ParseClient parses an address or a prefix.
func ParseClient(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone("").Prefix(a.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("client is %q: say an address or a prefix", s)
	}
	return p.Masked(), nil
}

// Error is the answer to a request that failed.
type Error = controlsocket.Error

// Duration is a time.Duration that reads and writes itself as "30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
