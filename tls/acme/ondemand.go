package acme

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/bounded"
	mtls "github.com/millrace/millrace/tls"
)

// DemandOptions configure an OnDemand. Names, Suffixes or Ask are required.
type DemandOptions struct {
	Store *mtls.Store
	// Names are permitted. So are names below one of Suffixes ("example.org" permits "a.example.org" and "a.b.example.org"), and
	// with Ask only those of them that it permits too.
	Names, Suffixes []string
	// Ask is a URL that gets a GET with the parameter domain for each name that Names does not have: a status of 200 to 299 permits it.
	Ask    string
	Client *http.Client // for Ask; nil: one with a timeout of 5 s. It follows no redirect
	// OrdersPerHour bounds the orders: authorities have such bounds themselves, and a client may ask for any number of names.
	OrdersPerHour int
	// Certificates bounds those that are held at a time. Of both bounds a part is left to Names, which clients may not use up by others.
	Certificates int

	order func(ctx context.Context, c *managed) error // tests
}

// OnDemand obtains certificates for names that clients ask for in handshakes. Names that are not permitted cost a look at a list: neither
// memory, nor a request.
type OnDemand struct {
	m      *Manager
	o      DemandOptions
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	flights map[string]*demandFlight
	denied  bounded.Map[string, time.Time] // until when nothing is done for a name
	held    []*managed
	waiting int
	asks    rate
	orders  rate
	stats   DemandStats
	warned  time.Time
	closed  bool
}

// DemandStats are counters of an OnDemand. Waiting and Certificates are of now.
type DemandStats struct {
	Waiting      int    // handshakes
	Certificates int    // that are held
	Asked        uint64 // requests to Ask
	Refused      uint64 // handshakes whose name is not permitted
	Limited      uint64 // handshakes beyond a bound
	Obtained     uint64 // certificates, from the authority or the folder
	Failed       uint64 // orders and requests
}

// demandFlight is the work for one name, for which handshakes wait.
type demandFlight struct{ waiters []*demandWaiter }

type demandWaiter struct{ wake func() }

const (
	// demandFlights bounds the names that are worked for at a time, and demandWaiters the handshakes that wait for them.
	demandFlights = 16
	demandWaiters = 1024
	// asksPerSecond and asksBurst bound the requests for names of which nothing is known: a flood of names is none of the URL's server.
	asksPerSecond = 10
	asksBurst     = 50
	ordersBurst   = 5
	ordersReserve = 2 // of them, for Names without a certificate
	// demandDenied bounds the names that are remembered, for denyTime, or denyErrorTime where the answer was no answer.
	demandDenied  = 4096
	denyTime      = time.Minute
	denyErrorTime = 5 * time.Second
	askTime       = 5 * time.Second
)

// Errors of names that get no certificate on demand.
var (
	ErrNotPermitted = errors.New("acme: the name is not permitted on demand")
	ErrLimited      = errors.New("acme: a bound of certificates on demand is reached")
	ErrAsk          = errors.New("acme: no answer whether a name is permitted on demand")
)

// rate is a token bucket.
type rate struct {
	tokens, most float64
	every        time.Duration // for a token
	at           time.Time
}

// take takes a token, if more than a reserve are there.
func (r *rate) take(now time.Time, reserve int) bool {
	r.tokens = min(r.most, r.tokens+float64(now.Sub(r.at))/float64(r.every))
	if r.at = now; r.tokens < float64(1+reserve) {
		return false
	}
	r.tokens--
	return true
}

// NewOnDemand returns an OnDemand whose certificates the manager renews once SetOnDemand has it.
func (m *Manager) NewOnDemand(o DemandOptions) (*OnDemand, error) {
	switch {
	case o.Store == nil:
		return nil, fmt.Errorf("%w: OnDemand needs a Store", ErrOptions)
	case len(o.Names)+len(o.Suffixes) == 0 && o.Ask == "":
		return nil, fmt.Errorf("%w: OnDemand needs Names, Suffixes or Ask: otherwise anyone could have certificates ordered", ErrOptions)
	case o.OrdersPerHour < 1 || o.Certificates < 1:
		return nil, fmt.Errorf("%w: OnDemand needs OrdersPerHour and Certificates", ErrOptions)
	}
	d := &OnDemand{m: m, o: o, flights: map[string]*demandFlight{}}
	now := m.o.now()
	d.asks = rate{asksBurst, asksBurst, time.Second / asksPerSecond, now}
	burst := float64(min(o.OrdersPerHour, ordersBurst))
	d.orders = rate{burst, burst, time.Hour / time.Duration(o.OrdersPerHour), now}
	client := http.Client{Timeout: askTime}
	if o.Client != nil {
		client = *o.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d.client = &client
	if d.o.order == nil {
		d.o.order = d.obtain
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// Close ends what is under way: handshakes go on without a certificate.
func (d *OnDemand) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.work.Wait()
}

// Stats returns the counters.
func (d *OnDemand) Stats() DemandStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.stats
	st.Waiting, st.Certificates = d.waiting, len(d.held)
	return st
}

// Want is called with the name of a handshake before its certificate is chosen, and reports whether the handshake is to wait until wake
// is called: once, from any goroutine, whether there is a certificate then or not. leave ends the wait before. It does not wait itself, and
// costs no memory where the handshake does not.
func (d *OnDemand) Want(name string, wake func()) (leave func(), waits bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || d.o.Store.HasName(name) {
		return nil, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.listed(name) {
		d.stats.Refused++
		return nil, false
	}
	f, now := d.flights[name], d.m.o.now()
	switch until := d.denied.Get(name); {
	case f == nil && until != nil && now.Before(*until):
		d.stats.Refused++
		return nil, false
	case d.closed || d.waiting >= demandWaiters || f == nil && len(d.flights) >= demandFlights && !d.named(name):
		d.stats.Limited++
		return nil, false
	case f == nil:
		f = &demandFlight{}
		d.flights[name] = f
		d.work.Go(func() { d.run(name, f) })
	}
	w := &demandWaiter{wake}
	f.waiters = append(f.waiters, w)
	d.waiting++
	return func() { d.leave(f, w) }, true
}

// leave takes a handshake out of those that wait.
func (d *OnDemand) leave(f *demandFlight, w *demandWaiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(f.waiters, w); i >= 0 {
		f.waiters = slices.Delete(f.waiters, i, i+1)
		d.waiting--
	}
}

// named reports whether Names has a name: bounds that clients can use up by others do not hold for these, whose number the options bound.
func (d *OnDemand) named(name string) bool { return slices.Contains(d.o.Names, name) }

// missing returns how many of Names have no certificate.
func (d *OnDemand) missing() (n int) {
	for _, name := range d.o.Names {
		if !d.o.Store.HasName(name) {
			n++
		}
	}
	return n
}

// listed reports whether a name may be permitted, as far as lists say.
func (d *OnDemand) listed(name string) bool {
	permitted := d.named(name) || len(d.o.Suffixes) == 0 && d.o.Ask != ""
	for _, s := range d.o.Suffixes {
		permitted = permitted || len(name) > len(s)+1 && strings.HasSuffix(name, s) && name[len(name)-len(s)-1] == '.'
	}
	return permitted && net.ParseIP(name) == nil && checkName(name) == nil
}

// run obtains the certificate for a name, and wakes those that wait.
func (d *OnDemand) run(name string, f *demandFlight) {
	c := &managed{names: []string{name}, to: []destination{{store: d.o.Store}}}
	c.permits = func(ctx context.Context) error { return d.ask(ctx, name) }
	deny, err := d.acquire(c)
	d.mu.Lock()
	if err == nil {
		d.held = append(d.held, c)
		d.stats.Obtained++
	} else if deny > 0 {
		*d.denied.Enter(strings.Clone(name), demandDenied) = d.m.o.now().Add(deny)
	}
	delete(d.flights, name)
	waiters := f.waiters
	f.waiters = nil
	d.waiting -= len(waiters)
	d.mu.Unlock()
	if err == nil {
		d.m.poke() // it is renewed
	}
	for _, w := range waiters {
		w.wake()
	}
}

// acquire obtains a certificate. With an error nothing is done for the name for a time.
func (d *OnDemand) acquire(c *managed) (deny time.Duration, err error) {
	stored := d.m.hasPair(c) // their number is bounded by that of orders: they are not limited
	named := d.named(c.names[0])
	if !stored && d.o.Ask != "" && !named && !d.allow(&d.asks, 0) {
		return 0, ErrLimited
	}
	if err := c.permits(d.ctx); err != nil {
		if errors.Is(err, ErrNotPermitted) {
			d.count(&d.stats.Refused)
			return denyTime, err
		}
		d.count(&d.stats.Failed)
		d.warn(c, err)
		return denyErrorTime, err
	}
	if stored {
		if err := d.m.restore(c); err == nil && c.leaf() != nil && d.m.o.now().Before(c.leaf().NotAfter) {
			return 0, nil
		}
	}
	reserve := 0
	if !named {
		reserve = d.missing()
	}
	if err := d.bounded(reserve); err != nil {
		d.warn(c, err)
		return denyTime, err
	}
	if err := d.o.order(d.ctx, c); err != nil {
		d.count(&d.stats.Failed)
		return denyTime, err
	}
	return 0, nil
}

// bounded takes an order from the bounds, but for a reserve of them.
func (d *OnDemand) bounded(reserve int) error {
	d.mu.Lock()
	full := len(d.held)+reserve >= d.o.Certificates
	if full {
		d.stats.Limited++
	}
	d.mu.Unlock()
	switch {
	case full:
		return fmt.Errorf("%w: %d certificates", ErrLimited, d.o.Certificates)
	case !d.allow(&d.orders, min(reserve, ordersReserve, int(d.orders.most)-1)):
		return fmt.Errorf("%w: %d orders an hour", ErrLimited, d.o.OrdersPerHour)
	}
	return nil
}

// obtain orders a certificate, unless an order has failed a short time ago.
func (d *OnDemand) obtain(ctx context.Context, c *managed) error {
	if err := d.m.restore(c); err != nil {
		return err
	}
	d.m.attend(ctx, c)
	if c.leaf() == nil {
		return fmt.Errorf("%w: %s", ErrBadIssue, c.names[0])
	}
	return nil
}

// allow takes a token, but for a reserve.
func (d *OnDemand) allow(r *rate, reserve int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.take(d.m.o.now(), reserve) {
		return true
	}
	d.stats.Limited++
	return false
}

func (d *OnDemand) count(n *uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n++
}

// warn reports that a name gets no certificate, at most once a minute: clients choose the names.
func (d *OnDemand) warn(c *managed, err error) {
	now := d.m.o.now()
	d.mu.Lock()
	quiet := now.Sub(d.warned) < time.Minute
	if !quiet {
		d.warned = now
	}
	d.mu.Unlock()
	if !quiet && d.m.o.Report != nil {
		d.m.o.Report(Event{Names: c.names, Err: err, Next: now.Add(denyTime)})
	}
}

// ask asks whether a name is permitted. The error is ErrNotPermitted where the answer is no.
func (d *OnDemand) ask(ctx context.Context, name string) error {
	if d.o.Ask == "" || d.named(name) {
		return nil
	}
	d.count(&d.stats.Asked)
	u, err := url.Parse(d.o.Ask)
	if err != nil {
		return fmt.Errorf("%w: it is no URL", ErrAsk) // which may have a secret
	}
	at := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	q := u.Query()
	q.Set("domain", name)
	u.RawQuery = q.Encode()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	w, err := d.client.Do(r)
	if err != nil {
		if of := (*url.Error)(nil); errors.As(err, &of) {
			err = of.Err // without the URL, whose parameters may have a secret
		}
		return fmt.Errorf("%w: %s: %w", ErrAsk, &at, err)
	}
	defer w.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(w.Body, 4096))
	switch {
	case w.StatusCode/100 == 2:
		return nil
	case w.StatusCode >= 500:
		return fmt.Errorf("%w: %s has answered %s", ErrAsk, &at, w.Status)
	}
	return fmt.Errorf("%w: %s has answered %s for %s", ErrNotPermitted, &at, w.Status, name)
}

// SetOnDemand has the certificates of these renewed, and of no others.
func (m *Manager) SetOnDemand(list []*OnDemand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.demands = list
	m.poke()
}

// attended returns all certificates that are renewed.
func (m *Manager) attended() []*managed {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.managed)
	for _, d := range m.demands {
		d.mu.Lock()
		all = append(all, d.held...)
		d.mu.Unlock()
	}
	return all
}
