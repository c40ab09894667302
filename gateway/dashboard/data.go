package dashboard

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gpukern"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
)

// Data holds the contents of the page. Counters grow: the page makes rates of two of them. Lists are bounded by mostRows.
type Data struct {
	Version  string              `json:"version"`
	Config   string              `json:"config"`
	Now      time.Time           `json:"now"`
	Started  time.Time           `json:"started"`
	Draining bool                `json:"draining"`
	Commands bool                `json:"commands"` // there is a token
	CPU      float64             `json:"cpu_seconds"`
	Memory   uint64              `json:"memory_bytes"`
	Reload   admin.Reload        `json:"reload"`
	Packets  admin.Counts        `json:"packets"`
	Loops    []Loop              `json:"loops"`
	Engine   gpukern.EngineStats `json:"engine"`
	Notices  []Notice            `json:"notices"`

	Backends []Backend `json:"backends"` // of pools and services, those that are down first
	More     More      `json:"more"`

	HTTP *HTTP `json:"http,omitempty"`
	Role *Role `json:"role,omitempty"`
}

// Role is the role of one of two gateways.
type Role struct {
	State    string    `json:"state"` // active, standby, probing, joining or yielding
	Since    time.Time `json:"since"`
	Why      string    `json:"why"`
	Trouble  []string  `json:"trouble"` // what an operator has to look at
	Peer     string    `json:"peer"`    // its state as it was heard last
	Heard    bool      `json:"heard"`   // within the lease
	Silent   float64   `json:"silent_seconds"`
	Lease    float64   `json:"lease_seconds"`
	Splits   uint64    `json:"split_brains"`
	Priority uint8     `json:"priority"`
}

// More counts what is not in the lists.
type More struct {
	Backends int `json:"backends"`
	Down     int `json:"down_backends"` // of them
	Routes   int `json:"routes"`
	Certs    int `json:"certificates"`
}

// Loop is a loop of devices.
type Loop struct {
	Received   uint64 `json:"received"`
	Iterations uint64 `json:"iterations"`
	Busy       uint64 `json:"busy"`
	Sleeps     uint64 `json:"sleeps"`
}

// Backend is one of a pool or of a service.
type Backend struct {
	Of       string  `json:"of"` // name of the pool or the service
	Service  bool    `json:"service"`
	Name     string  `json:"name"`
	Where    string  `json:"where"`
	State    string  `json:"state"`
	Up       bool    `json:"up"`
	Cause    string  `json:"cause,omitempty"`
	Weight   int     `json:"weight"`
	Open     uint64  `json:"connections"`
	Active   int     `json:"active"`
	Done     uint64  `json:"done"` // responses, or connections of a service
	Failed   uint64  `json:"failed"`
	Packets  uint64  `json:"packets"`
	Latency  float64 `json:"latency"`
	Operator bool    `json:"operator"`
}

// HTTP is about listeners.
type HTTP struct {
	Counts       l7control.Counts           `json:"counts"`
	Listeners    []l7control.ListenerStatus `json:"listeners"`
	Routes       []l7control.RouteStatus    `json:"routes"`
	Latency      []Bucket                   `json:"latency"`
	LatencyTotal uint64                     `json:"latency_count"`
}

// Bucket counts requests that took at most a time; buckets are cumulative.
type Bucket struct {
	Seconds float64 `json:"s"`
	Count   uint64  `json:"n"`
}

// mostRows bounds lists.
const mostRows = 200

// SetBackends fills in the backends of services and of pools; pools may be nil.
func (d *Data) SetBackends(services []l4control.ServiceStatus, pools []l7control.PoolStatus) {
	for i := range services {
		s := &services[i]
		for k := range s.Backends {
			b := &s.Backends[k]
			one := Backend{
				Of: s.Name, Service: true, Name: b.Name, Where: b.Address.String(), State: string(b.State), Up: b.Healthy && !b.Ejected && !b.Removed,
				Weight: b.Weight, Open: b.Connections, Done: b.Opened, Packets: b.ToPackets + b.FromPackets, Operator: b.OperatorDrained || b.OperatorWeight,
			}
			if len(b.Down) > 0 {
				one.Cause = b.Down[0].By + ": " + b.Down[0].Cause
			}
			d.Backends = append(d.Backends, one)
		}
	}
	for i := range pools {
		p := &pools[i]
		for k := range p.Backends {
			b := &p.Backends[k]
			one := Backend{
				Of: p.Name, Name: b.Name, Where: b.Where(), State: b.State, Up: b.Healthy && !b.Ejected, Cause: b.Cause, Weight: b.Weight, Open: uint64(b.Connections),
				Active: b.Requests, Latency: b.Latency, Operator: b.Operator,
			}
			for class, n := range b.Responses {
				if one.Done += n; class == "5xx" {
					one.Failed += n
				}
			}
			for _, n := range b.Failures {
				one.Failed += n
			}
			d.Backends = append(d.Backends, one)
		}
	}
	d.cut()
}

// cut leaves the first backends: those that are down, then those that did most.
func (d *Data) cut() {
	if len(d.Backends) <= mostRows {
		return
	}
	slices.SortStableFunc(d.Backends, func(a, b Backend) int {
		if a.Up != b.Up {
			return map[bool]int{true: 1, false: -1}[a.Up]
		}
		return cmp.Compare(b.Done+b.Packets, a.Done+a.Packets)
	})
	for i := range d.Backends[mostRows:] {
		if d.More.Backends++; !d.Backends[mostRows+i].Up {
			d.More.Down++
		}
	}
	d.Backends = slices.Clone(d.Backends[:mostRows])
}

// SetHTTP fills in what is about listeners.
func (d *Data) SetHTTP(st *l7control.Status, routes []l7control.RouteStatus, latency []Bucket, count uint64) {
	h := &HTTP{Counts: st.Counts, Listeners: st.Listeners, Routes: routes, Latency: latency, LatencyTotal: count}
	if n := len(h.Routes) - mostRows; n > 0 {
		h.Routes, d.More.Routes = h.Routes[:mostRows], n
	}
	left := mostRows
	for i := range h.Listeners {
		l := &h.Listeners[i]
		if n := len(l.Certificates) - left; n > 0 {
			l.Certificates, d.More.Certs = l.Certificates[:left], d.More.Certs+n
		}
		left -= len(l.Certificates)
	}
	h.Listeners = h.Listeners[:min(len(h.Listeners), mostRows)]
	d.HTTP = h
}
