package proxy

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/semantics"
)

// Guard decides which requests of a listener or of a route are served at all, before a backend is chosen. It is not changed once
// workers have it; what it counts, and what its parts remember, is shared by all workers and outlives reloads.
//
// The order of its parts is fixed: what is cheap and refuses most comes first, so that a client that is refused costs little.
type Guard struct {
	Sources     *Sources     // nil serves every client
	Maintenance *Maintenance // nil is none
	Body        int64        // bytes of a request, in place of the listener's limit; 0 is that
	Limits      []*RateLimit
	UserLimits  []*RateLimit // of a route, whose key is the user
	PerUser     *UserPlaces  // of a route; nil is no bound
	Auth        Authority    // of a route; nil asks for no credentials
	Places      *Places      // of a route; nil is no bound
	Counts      *GuardCounts
}

// Sources selects the clients that are served: the longest prefix that holds one decides. The nil pointer serves every client.
type Sources struct {
	Prefixes *lpm.Table
	Denied   uint16 // what prefixes lead to whose clients are denied
	Deny     bool   // clients that no prefix holds
}

// Denies reports whether a client is not served.
func (s *Sources) Denies(client netip.Addr) bool {
	if s == nil {
		return false
	}
	if to := s.Prefixes.Lookup(client.Unmap().WithZone("")); to != 0 {
		return to == s.Denied
	}
	return s.Deny
}

// GuardReason is the part of a Guard that has refused a request.
type GuardReason uint8

// Values of GuardReason.
const (
	GuardSources     GuardReason = iota // Sources
	GuardMaintenance                    // Maintenance
	GuardRate                           // a RateLimit
	GuardAuth                           // Auth
	GuardPlaces                         // Places
	GuardBody                           // Body, where the header announces more
	GuardReasons
)

// String returns a name for labels and logs.
func (r GuardReason) String() string {
	return [...]string{"sources", "maintenance", "rate_limit", "auth", "concurrency", "body"}[r]
}

// GuardCounts counts what a Guard refuses. Each worker has a block of its own, as those of Route.
type GuardCounts struct{ blocks []*metrics.Block }

// NewGuardCounts returns counters for a number of workers.
func NewGuardCounts(workers int) *GuardCounts {
	c := &GuardCounts{}
	for range workers {
		c.blocks = append(c.blocks, metrics.NewBlock(int(GuardReasons)))
	}
	return c
}

// Refused returns the counters by reason, summed over the workers. Any goroutine may call it.
func (c *GuardCounts) Refused() (sum [GuardReasons]uint64) {
	for _, b := range c.blocks {
		b.AddTo(sum[:])
	}
	return sum
}

// hold is the part of an exchange that only requests under a Guard have. The worker keeps free ones, so that none is allocated for
// each request.
type hold struct {
	next   *hold
	kind   holdKind
	reason []byte  // why the request was refused, for the access log
	spent  []spent // of limits that the response announces
	text   []byte  // of its fields
	places *Places // of which it has one
	pooled *Places // the same, of a pool

	userPlaces *UserPlaces // where it counts for userKey
	userKey    uint64

	extra []semantics.Field // of the response of the gateway

	// What an Authority has found.
	user     []byte            // "" where it is not known
	names    []string          // of fields that the client must not have set
	identity []semantics.Field // that the request gets in their place

	// A request that waits goes on with what route had found: the parts of the guard that it has passed are not asked again.
	path, query string
	client      netip.Addr
	step        guardStep
	until       clock.Time       // when it has waited for too long,
	late        func(x guarding) // which is called then
}

// guarding asks the guards of an exchange, and holds what they need.
type guarding struct{ *exchange }

// holdKind is the kind of an exchange with a hold.
type holdKind uint8

const (
	clientHold   holdKind = iota
	internalHold          // a request of the gateway's own: it is not counted
)

// guardStep is a part of a guard that a request may wait for.
type guardStep uint8

// Values of guardStep, in their order.
const (
	beforeAuth guardStep = iota
	beforeUsers
	beforePlaces
	passed
)

// holding returns the hold of an exchange, which it gets where it has none. finishHeld gives it back.
func (x guarding) holding() *hold {
	if x.hold != nil {
		return x.hold
	}
	h := x.w.holds
	if h == nil {
		h = &hold{}
	} else {
		x.w.holds = h.next
	}
	*h = hold{
		reason: h.reason[:0], spent: h.spent[:0], text: h.text[:0], extra: h.extra[:0], user: h.user[:0], names: h.names[:0], identity: h.identity[:0],
	}
	x.hold = h
	return h
}

// finishHeld records an exchange under a Guard, and gives back what it has taken. It is called once, at the end of the exchange.
func (x guarding) finishHeld() {
	h := x.hold
	if h.kind == clientHold {
		x.record()
	}
	x.hold = nil
	if p := h.places; p != nil {
		h.places = nil
		p.release()
	}
	if p := h.pooled; p != nil {
		h.pooled = nil
		p.release()
	}
	if p := h.userPlaces; p != nil {
		h.userPlaces = nil
		p.in.Leave(h.userKey)
	}
	h.next, x.w.holds = x.w.holds, h
}

// passes asks a guard about a request. Otherwise it has answered.
func (x guarding) passes(g *Guard, path, query string, client netip.Addr) bool {
	if g.Sources.Denies(client) {
		x.refuseBy(g, GuardSources, "", errForbidden)
		return false
	}
	if m := g.Maintenance; !m.serves(client) {
		if m.RetryAfter > 0 {
			h := x.holding()
			h.extra = append(h.extra, semantics.Field{Name: "retry-after", Value: strconv.FormatInt(seconds(m.RetryAfter), 10)})
		}
		x.refuseBy(g, GuardMaintenance, "", errMaintenance)
		return false
	}
	if g.Body > 0 && x.request.ContentLength > g.Body {
		x.refuseBy(g, GuardBody, "", errBody)
		return false
	}
	if len(g.Limits) == 0 {
		return true
	}
	src := rewrite.Source{Fields: x.request.Fields, Path: path, Query: query, Client: client}
	for _, l := range g.Limits {
		if !x.limit(g, l, &src) {
			return false
		}
	}
	return true
}

// guarded serves a request of a rule with a guard, if that permits it. Otherwise it was answered, or waits.
func (x guarding) guarded(path, query string, client netip.Addr) {
	g := x.rule.Guard
	if !x.passes(g, path, query, client) {
		return
	}
	if g.Places == nil && g.Auth == nil && g.PerUser == nil && len(g.UserLimits) == 0 {
		x.serve(path, query, client)
		return
	}
	h := x.holding()
	h.path, h.query, h.client, h.step = path, query, client, beforeAuth
	x.steps()
}

// steps asks those parts of a guard that a request may have to wait for, and then serves it.
func (x guarding) steps() {
	g, h := x.rule.Guard, x.hold
	for h.step < passed {
		step := h.step
		h.step++ // a part that the request waits for is not asked again
		switch {
		case step == beforeAuth && g.Auth != nil && !g.Auth.authorize(x, g), step == beforeUsers && !x.users(g), step == beforePlaces && g.Places != nil && !x.place(g):
			return
		}
	}
	x.serve(h.path, h.query, h.client)
}

// holdUntil makes the request wait; its field waits has the event. late is called if that takes too long.
func (x guarding) holdUntil(wait time.Duration, late func(x guarding)) {
	x.outgoing = *x.request // of which what comes of the content meanwhile has to know whether it is a WebSocket
	x.hold.until, x.hold.late = x.w.Now.Add(wait), late
	x.on(halted)
	x.deadline()
}

// resume goes on with a request that has waited.
func (x guarding) resume() {
	x.hold.until, x.hold.late = clock.Never, nil
	x.steps()
}

// waitedTooLong ends the wait of a request.
func (x guarding) waitedTooLong() {
	late := x.hold.late
	x.withdraw()
	late(x)
}

// identify gives the request for a backend the fields of an Authority, in place of what the client has sent under their names.
func (h *hold) identify(fields []semantics.Field) []semantics.Field {
	if len(h.names) == 0 {
		return fields
	}
	fields = slices.DeleteFunc(fields, func(f semantics.Field) bool { return slices.Contains(h.names, f.Name) })
	return append(fields, h.identity...)
}

// refuseBy answers a request that a part of a guard refuses. name is that of the part, where a guard may have several.
func (x guarding) refuseBy(g *Guard, r GuardReason, name string, f *failure) {
	g.Counts.blocks[x.w.id].Add(int(r), 1)
	h := x.holding()
	if h.reason = append(h.reason, r.String()...); name != "" {
		h.reason = append(append(h.reason, ' '), name...)
	}
	x.answer(f)
}
