package inspection

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gateway/config"
)

// Requests inspects the requests that one worker of listeners serves, by the policies that name these. It has the engines; the worker
// hands messages over to them, and ends what they say. Its methods belong to the worker's loop.
type Requests struct {
	of      *Inspector
	number  int
	set     *set             // that the engines were last compared with
	engines []*requestEngine // by number of the policy; nil where there is none
	encoder encoder
}

// requestEngine holds the state of one policy in one worker.
type requestEngine struct {
	policy *policy
	mode   inspect.Mode
	*inspect.Engine
}

// SetWorkers sets how many workers of listeners share the bounds, before the first request.
func (i *Inspector) SetWorkers(workers int) {
	i.workers = nil
	for n := range workers {
		i.workers = append(i.workers, &Requests{of: i, number: n})
	}
}

// Requests returns what inspects the requests of a worker.
func (i *Inspector) Requests(n int) *Requests { return i.workers[n] }

// Engine returns the engine of a policy with its present rules, and what follows from its results; nil where
// there is no such policy for listeners. request counts one. A reload is in force with the next request: what is in progress goes on by the new rules.
func (r *Requests) Engine(number uint8, request bool) (*inspect.Engine, inspect.Mode) {
	set := r.of.set.Load()
	if set != r.set {
		r.follow(set)
	}
	p := set.policy(number)
	if p == nil || p.requests == nil {
		return nil, inspect.Detect
	}
	if request {
		p.totals.requests.Add(1)
	}
	n := int(p.number)
	for len(r.engines) <= n {
		r.engines = append(r.engines, nil)
	}
	e := r.engines[n]
	switch {
	case e == nil:
		e = &requestEngine{mode: p.mode()}
		e.policy, e.Engine = p, inspect.New(p.requests, r.config(e, p), func(a *inspect.Alert) { r.alert(e.policy, a) })
		r.engines[n] = e
	case e.policy != p:
		e.Swap(p.requests, r.config(e, p))
		e.policy, e.mode = p, p.mode()
	}
	return e.Engine, e.mode
}

// follow abandons the engines of policies that a reload has removed, or that are for packets alone now.
func (r *Requests) follow(set *set) {
	r.set = set
	for n, e := range r.engines {
		if e == nil {
			continue
		}
		if p := set.policy(e.policy.number); p == nil || p.requests == nil {
			r.engines[n] = nil
		}
	}
}

// mode returns what follows from results about requests.
func (p *policy) mode() inspect.Mode {
	switch {
	case !p.prevent:
		return inspect.Detect
	case p.failOpen:
		return inspect.PreventOpen
	}
	return inspect.Prevent
}

// endsRequest reports whether a request that an alert is about ends by rules that drop: the choice of its route comes before the mode.
func (p *policy) endsRequest(a *inspect.Alert) bool {
	if a.Exchange == nil || a.Exchange.Choice == nil {
		return p.prevent
	}
	return a.Exchange.Choice.Mode != inspect.Detect
}

// config returns this worker's part of the bounds of a policy.
func (r *Requests) config(e *requestEngine, p *policy) inspect.Config {
	cfg := r.of.part(p)
	cfg.Block, cfg.DropConflicts = false, false // an exchange ends, not all of a connection
	cfg.OnMatch = func(q *signature.Rule) { e.policy.matched(q) }
	return cfg
}

// part returns the bounds of an engine of a policy: its share of those of all loops and workers that have one.
func (i *Inspector) part(p *policy) inspect.Config {
	cfg, parts := p.engine, 0
	if p.packets {
		parts += len(i.loops)
	}
	if p.requests != nil {
		parts += len(i.workers)
	}
	parts = max(parts, 1)
	cfg.MaxFlows, cfg.MemoryBytes = max(cfg.MaxFlows/parts, 1), max(liveBytes(cfg.MemoryBytes)/parts, leastMemory)
	return cfg
}

// alert reports what an engine has found in a message.
func (r *Requests) alert(p *policy, a *inspect.Alert) {
	now := clock.Time(a.Time)
	action := actionOf(p, a, p.endsRequest(a), a.Packet == 0)
	out := newAlert(p, a, action)
	out.Loop, out.Time = r.number, wallTime(r.of.opt.Wall(now))
	out.Request = requestOf(a)
	if o := r.of.alerts.Load(); o != nil {
		r.encoder.show(&out, a.Payload, r.of.set.Load().payload)
		_, _ = o.queue.Write(r.encoder.encode(&out)) // it does not fail
	}
	if r.of.opt.OnVerdict == nil || out.Late || a.Conn.Proxied { // of a proxy's address nothing follows for its clients
		return
	}
	r.of.opt.OnVerdict(&Verdict{
		Time: now, Policy: p.name, Service: a.Conn.Listener, Client: a.Conn.From.Addr().Unmap(), Source: a.Src, SrcPort: a.SrcPort, Dest: a.Dst,
		DestPort: a.DstPort, Proto: a.Proto, Rule: a.Rule, Action: action,
	})
}

// requestOf returns what an alert shows of the request.
func requestOf(a *inspect.Alert) *AlertRequest {
	q := &AlertRequest{Listener: a.Conn.Listener, ServerName: a.Conn.ServerName}
	if x := a.Exchange; x != nil {
		q.Method, q.Host, q.URI = printable(x.Method()), printable(x.Host()), printable(x.URI())
	}
	return q
}

// AlertRequest is the request that an Alert of a listener is about.
type AlertRequest struct {
	Listener   string `json:"listener"`
	ServerName string `json:"sni"`
	Method     string `json:"method"` // "" of a ClientHello
	Host       string `json:"host"`
	URI        string `json:"uri"`
}

// ofRequests compiles those rules that can be evaluated on requests, and notes the others by their reasons.
func (p *policy) ofRequests(rules []*signature.Rule, before *inspect.Rules) (err error) {
	p.unfit = map[string][]*signature.Rule{}
	var fit []*signature.Rule
	for _, r := range rules {
		if why := inspect.NotOfMessages(r); why != "" {
			p.unfit[why] = append(p.unfit[why], r)
		} else {
			fit = append(fit, r)
		}
	}
	p.requests, err = inspect.CompileNext(fit, before)
	return err
}

// namedRules bounds the rules that Fit names for each reason.
const namedRules = 5

// Fit describes, for logs, how many rules of the policies for listeners apply to requests, and why others do not.
type Fit struct {
	Policy     string
	Fit, Rules int
	Others     string // by reason: how many, and the first ones
	Unknown    string // rules that routes exclude, and that the policy does not have
}

// Fits returns a Fit for each policy that names listeners.
func (i *Inspector) Fits() (list []Fit) {
	for _, p := range i.set.Load().rules {
		if p.requests == nil {
			continue
		}
		f := Fit{Policy: p.name, Rules: len(p.all)}
		f.Fit, _ = p.requests.Len()
		var parts []string
		for _, why := range slices.SortedFunc(maps.Keys(p.unfit), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(p.unfit[b]), len(p.unfit[a])), cmp.Compare(a, b))
		}) {
			of := p.unfit[why]
			names := make([]string, 0, namedRules)
			for _, r := range of[:min(len(of), namedRules)] {
				names = append(names, fmt.Sprintf("%d:%d", r.GID, r.SID))
			}
			text := fmt.Sprintf("%d %s (%s", len(of), why, strings.Join(names, " "))
			if len(of) > namedRules {
				text += " and others"
			}
			parts = append(parts, text+")")
		}
		f.Others = strings.Join(parts, ", ")
		f.Unknown = p.unknown(i.configuration().Excepted(p.name))
		list = append(list, f)
	}
	return list
}

// unknown returns those of some rules that the policy does not have.
func (p *policy) unknown(list []config.ExceptedRule) string {
	var names []string
	for _, id := range list {
		if !slices.ContainsFunc(p.all, func(r *signature.Rule) bool { return r.GID == id.GID && r.SID == id.SID }) {
			names = append(names, fmt.Sprintf("%d:%d", id.GID, id.SID))
		}
	}
	return strings.Join(names, " ")
}

// configuration returns the present one.
func (i *Inspector) configuration() *config.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cfg
}

// String returns the sentence of a Fit.
func (f Fit) String() string {
	s := fmt.Sprintf("%d of %d rules apply to requests", f.Fit, f.Rules)
	if f.Others != "" {
		s += "; others are about " + f.Others
	}
	if f.Unknown != "" {
		s += "; routes exclude rules that it does not have: " + f.Unknown
	}
	return s
}
