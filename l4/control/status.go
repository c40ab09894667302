package control

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

// Status is the state of the gateway at one moment. Its JSON keys are stable: a version with the same
// major number adds keys and renames none. Counts are since the start and over all loops.
type Status struct {
	Connections   uint64            `json:"connections"`
	TableSize     int               `json:"table_size"`
	HalfOpen      uint64            `json:"half_open"` // connections of which only one side has been seen
	Active        uint64            `json:"active"`    // confirmed and open in both directions
	Closing       uint64            `json:"closing"`   // that a FIN or RST has begun to close
	HalfOpenLimit int               `json:"half_open_limit"`
	Forwarded     uint64            `json:"forwarded_packets"` // with the answers to ARP and neighbour solicitations
	Dropped       map[string]uint64 `json:"dropped_packets"`   // by reason
	Answers       map[string]uint64 `json:"answers"`           // that the gateway made itself, by kind; they count as forwarded
	Sync          *SyncStatus       `json:"sync,omitempty"`    // the other of two gateways that share connections
	Kernel        *KernelStatus     `json:"kernel,omitempty"`  // connections that the kernel forwards
	SNAT          []SNATStatus      `json:"snat"`              // the first 256 of the configuration
	Services      []ServiceStatus   `json:"services"`

	// What a limit, or Foremost, has left out: services, and backends of these and others.
	MoreServices    int    `json:"more_services,omitempty"`
	MoreBackends    int    `json:"more_backends,omitempty"`
	MoreDown        int    `json:"more_down_backends,omitempty"` // that take no new connections, by their checks or ejected
	MoreConnections uint64 `json:"more_connections,omitempty"`   // of these backends
}

// Selection chooses what a status shows. The zero value is all.
type Selection struct {
	Services []string // by name
	Backend  string   // backends of this name, and services that have one
	Limit    int      // backends of all services together, in the order of the configuration; 0 is no limit
	Foremost int      // services: those with the most backends that are down, then those with the most connections; 0 is all
	Summary  bool     // of each service the sums of its backends in place of these
}

// ServiceStatus is the state of a service.
type ServiceStatus struct {
	Name      string             `json:"name"`
	Protocol  string             `json:"protocol"`
	Mode      config.Mode        `json:"mode"`
	Addresses []config.AddrPorts `json:"addresses"`
	Dropped   map[string]uint64  `json:"dropped_packets"` // by reason, of packets that were the service's
	Evicted   Evicted            `json:"evicted_connections"`
	Backends  []BackendStatus    `json:"backends"`
	Summary   *ServiceSummary    `json:"summary,omitempty"` // of a status with Selection.Summary, which lists no backends
}

// ServiceSummary sums up the backends of a service. Those that a reload removed add to all but the first two.
type ServiceSummary struct {
	Backends    int    `json:"backends"`
	Up          int    `json:"up_backends"` // that take new connections
	Connections uint64 `json:"connections"`
	Opened      uint64 `json:"opened_connections"`
	ToPackets   uint64 `json:"to_packets"`
	FromPackets uint64 `json:"from_packets"`
}

// Evicted counts connections that made room for others.
type Evicted struct {
	HalfOpen  uint64 `json:"half_open"` // the oldest, when the budget, the table or the source ports were used up
	Confirmed uint64 `json:"confirmed"` // idle ones, when confirmed ones filled their part of the table
}

// BackendStatus is the state of one address of a backend.
type BackendStatus struct {
	Name             string           `json:"name"`
	Address          config.AddrPorts `json:"address"`
	State            config.State     `json:"state"`              // filling, active, draining or inactive; "" when removed
	Since            time.Time        `json:"since"`              // of that state
	ConfigState      config.State     `json:"config_state"`       // what the file says
	OperatorDrained  bool             `json:"operator_drained"`   // an operator drains it, whatever the file says
	DrainUntil       *time.Time       `json:"drain_until"`        // when it will be inactive; null: not draining, or until its connections end
	Weight           int              `json:"weight"`             // in force
	ConfigWeight     int              `json:"config_weight"`      // what the file says
	OperatorWeight   bool             `json:"operator_weight"`    // an operator gave the weight
	SlowStartPercent int              `json:"slow_start_percent"` // how much of its weight counts: below 100 while it fills
	Healthy          bool             `json:"healthy"`            // by its checks
	Ejected          bool             `json:"ejected"`            // by the outlier detector: it takes no new connections
	Down             []DownStatus     `json:"down,omitempty"`     // why it is not healthy, or ejected
	Check            *CheckStatus     `json:"check,omitempty"`    // the last probe
	Removed          bool             `json:"removed"`            // by a reload; it has connections left
	NextHop          string           `json:"next_hop"`           // "ready", "unresolved" or "no route"
	MaxConnections   int              `json:"max_connections"`    // what the file says; 0 is none
	Connections      uint64           `json:"connections"`
	Closing          uint64           `json:"closing_connections"` // those of them that a FIN or RST has begun to close
	Opened           uint64           `json:"opened_connections"`
	ToPackets        uint64           `json:"to_packets"`
	ToBytes          uint64           `json:"to_bytes"`
	FromPackets      uint64           `json:"from_packets"`
	FromBytes        uint64           `json:"from_bytes"`
}

// DownStatus is a reason why a backend takes no new connections.
type DownStatus struct {
	By    string     `json:"by"` // "check" or "passive"
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"` // when an ejection ends
	Cause string     `json:"cause"`
}

// CheckStatus is the result of a probe.
type CheckStatus struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Cause   string    `json:"cause,omitempty"` // why it failed
}

// Status returns the present state.
func (g *Gateway) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, _ := g.status(func(int) bool { return true })
	return st
}

// StatusOf returns the present state of what is chosen, in the order of the configuration. The error wraps
// ErrUnknownService or ErrUnknownBackend.
func (g *Gateway) StatusOf(sel Selection) (Status, error) {
	if err := g.known(&sel); err != nil {
		return Status{}, err
	}
	named := map[string]bool{}
	for _, name := range sel.Services {
		named[name] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	chosen := func(i int) bool {
		s := &g.cfg.Services[i]
		return (len(named) == 0 || named[s.Name]) &&
			(sel.Backend == "" || slices.ContainsFunc(s.Backends, func(b config.Backend) bool { return b.Name == sel.Backend }))
	}
	var more rank
	services := 0
	if sel.Foremost > 0 {
		chosen, more, services = g.foremost(chosen, sel.Backend, sel.Foremost)
	}
	st, _ := g.status(chosen)
	st.MoreServices, st.MoreBackends, st.MoreDown, st.MoreConnections = services, more.backends, more.down, more.connections
	st.narrow(&sel)
	if sel.Summary {
		for i := range st.Services {
			st.Services[i].Summarize()
		}
	}
	return st, nil
}

// Summarize puts the sums of the backends in their place.
func (s *ServiceStatus) Summarize() {
	sum := &ServiceSummary{}
	for i := range s.Backends {
		sum.add(&s.Backends[i])
	}
	s.Backends, s.Summary = []BackendStatus{}, sum
}

func (sum *ServiceSummary) add(b *BackendStatus) {
	sum.Connections += b.Connections
	sum.Opened += b.Opened
	sum.ToPackets += b.ToPackets
	sum.FromPackets += b.FromPackets
	if b.Removed {
		return
	}
	sum.Backends++
	if b.Healthy && !b.Ejected && b.Weight > 0 && (b.State == config.StateActive || b.State == config.StateFilling) {
		sum.Up++
	}
}

// known reports what of a selection the configuration lacks. The backend may be of any of the services.
func (g *Gateway) known(sel *Selection) (err error) {
	for _, name := range sel.Services {
		if err := g.Known(name, ""); err != nil {
			return err
		}
	}
	if len(sel.Services) == 0 {
		return g.Known("", sel.Backend)
	}
	for _, name := range sel.Services {
		if err = g.Known(name, sel.Backend); err == nil {
			return nil
		}
	}
	return err
}

// narrow leaves out the backends of other names and those beyond the limit, and counts the latter.
func (st *Status) narrow(sel *Selection) {
	left := sel.Limit
	if left == 0 {
		left = math.MaxInt
	}
	shown := st.Services[:0]
	for _, s := range st.Services {
		if sel.Backend != "" {
			s.Backends = slices.DeleteFunc(s.Backends, func(b BackendStatus) bool { return b.Name != sel.Backend })
		}
		n := min(len(s.Backends), left)
		st.leaveOut(s.Backends[n:])
		if left == 0 {
			st.MoreServices++
			continue
		}
		left -= n
		s.Backends = s.Backends[:n]
		shown = append(shown, s)
	}
	st.Services = shown
}

// leaveOut counts backends that are not shown.
func (st *Status) leaveOut(list []BackendStatus) {
	st.MoreBackends += len(list)
	for i := range list {
		st.MoreConnections += list[i].Connections
		if !list[i].Healthy || list[i].Ejected {
			st.MoreDown++
		}
	}
}

// status is Status with the chosen services, by their place in the configuration, and the sums of the others. The caller
// holds g.mu.
func (g *Gateway) status(chosen func(i int) bool) (Status, otherServices) {
	var other otherServices
	st := Status{TableSize: g.cfg.Table.Size, HalfOpenLimit: g.cfg.Table.HalfOpen, Dropped: map[string]uint64{}, Answers: map[string]uint64{}}
	for _, h := range g.handlers {
		st.Connections += h.Connections()
		st.HalfOpen += h.HalfOpen()
		st.Closing += h.Closing()
		st.Forwarded += h.Count(packet.Forward)
		addDrops(st.Dropped, h.Count)
		for kind, name := range datapath.AnswerKinds {
			st.Answers[name] += h.Answers(kind)
		}
	}
	st.Active = st.Connections - min(st.Connections, st.HalfOpen+st.Closing) // the three are read one after the other
	s := g.snap.Load()
	st.SNAT, st.Sync, st.Kernel = g.snatStatus(s), g.syncStatus(), g.kernelStatus()
	for i := range g.cfg.Services {
		if chosen(i) {
			st.Services = append(st.Services, g.serviceStatus(s, &g.cfg.Services[i]))
		} else {
			g.addService(s, &g.cfg.Services[i], &other)
		}
	}
	return st, other
}

// otherServices counts services that are not shown one by one.
type otherServices struct {
	services, backends   int
	unhealthy, ejected   int // backends
	connections, closing uint64
}

// addService adds the backends of a service. It looks at nothing else: of 10 000 services it is called at each scrape.
// The caller holds g.mu.
func (g *Gateway) addService(s *datapath.Snapshot, sv *config.Service, sum *otherServices) {
	sum.services++
	for _, n := range g.services[g.reg.services.of[sv.Name]].ids {
		b := s.Backends[n]
		flows := b.Flows()
		if !b.Configured && flows == 0 {
			continue
		}
		sum.backends++
		sum.connections += flows
		sum.closing += b.ClosingFlows()
		switch {
		case g.down[n]:
			sum.unhealthy++
		case g.ejected[n] != nil:
			sum.ejected++
		}
	}
}

// addDrops adds the counts of dropping verdicts to m by their names.
func addDrops(m map[string]uint64, count func(packet.Verdict) uint64) {
	for v := packet.Drop; int(v) < packet.Verdicts; v++ {
		if n := count(v); n != 0 {
			m[v.String()] += n
		}
	}
}

// serviceStatus returns the state of a service, backends with connections that a reload removed
// included.
func (g *Gateway) serviceStatus(s *datapath.Snapshot, sv *config.Service) ServiceStatus {
	id := g.reg.services.of[sv.Name]
	st := ServiceStatus{Name: sv.Name, Protocol: sv.Protocol, Mode: sv.Mode, Addresses: sv.Addresses, Dropped: map[string]uint64{}}
	addDrops(st.Dropped, s.Services[id].Drops)
	st.Evicted.HalfOpen, st.Evicted.Confirmed = s.Services[id].Evictions()
	ids := g.services[id].ids
	st.Backends = make([]BackendStatus, 0, len(ids))
	for _, n := range ids {
		if b := s.Backends[n]; b.Configured || b.Flows() > 0 {
			st.Backends = append(st.Backends, g.backendStatus(s, n))
		}
	}
	slices.SortStableFunc(st.Backends, func(a, b BackendStatus) int { return cmp.Compare(a.Name, b.Name) })
	return st
}

func (g *Gateway) backendStatus(s *datapath.Snapshot, id uint32) BackendStatus {
	b := s.Backends[id]
	st := BackendStatus{Name: g.reg.labels[id].Name, Address: g.reg.labels[id].Address}
	g.healthStatus(id, &st)
	st.Removed = !b.Configured
	g.configStatus(&st, b.Service, id)
	st.NextHop = nexthop.State(s.Endpoints[b.Endpoint].Hop.State).String()
	st.Connections, st.Opened = b.Flows(), b.Count(datapath.Opened)
	st.Closing = b.ClosingFlows()
	st.ToPackets, st.ToBytes = b.Count(datapath.ToPackets), b.Count(datapath.ToBytes)
	st.FromPackets, st.FromBytes = b.Count(datapath.FromPackets), b.Count(datapath.FromBytes)
	return st
}

// healthStatus enters what is known of a backend's health.
func (g *Gateway) healthStatus(id uint32, st *BackendStatus) {
	st.Healthy = !g.down[id]
	check, checked := g.checks.State(id)
	if checked && !check.Asked.IsZero() {
		st.Check = &CheckStatus{At: check.Asked, Seconds: check.Latency.Seconds(), Cause: text(check.Cause)}
	}
	if !st.Healthy {
		st.Down = append(st.Down, DownStatus{By: "check", Since: check.Since, Cause: text(check.Cause)})
	}
	if e := g.ejected[id]; e != nil {
		st.Ejected = true
		st.Down = append(st.Down, DownStatus{By: "passive", Since: e.since, Until: &e.until, Cause: text(e.cause)})
	}
}

// text returns what an error says; nothing for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// configStatus enters what is wanted of a backend, and how far that has come.
func (g *Gateway) configStatus(st *BackendStatus, service, id uint32) {
	o, t := g.services[service], &g.endpoints[id]
	st.State, st.Since = t.state, t.since
	m := o.backends[st.Name]
	if m == nil || st.Removed {
		return
	}
	st.ConfigState, st.OperatorDrained = m.config.State, m.drained
	if until := m.until; !m.drainOver && !until.IsZero() {
		st.DrainUntil = &until
	}
	st.MaxConnections = m.config.MaxConnections
	st.ConfigWeight, st.Weight, st.OperatorWeight = m.config.Weight, m.share(), m.weight >= 0
	part, of := t.fraction(time.Now(), o.config.SlowStart)
	st.SlowStartPercent = 100 * part / of
}
