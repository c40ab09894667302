package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/secretfile"
	mtls "github.com/millrace/millrace/tls"
)

// Directories of Let's Encrypt. That of its test environment issues certificates that clients do not trust,
// and has wider limits.
const (
	LetsEncrypt        = "https://acme-v02.api.letsencrypt.org/directory"
	LetsEncryptStaging = "https://acme-staging-v02.api.letsencrypt.org/directory"
)

// Errors of the package.
var (
	ErrOptions  = errors.New("acme: bad options")
	ErrName     = errors.New("acme: no name that can be proven over HTTP or TLS")
	ErrLocked   = errors.New("acme: another process uses the folder")
	ErrBadIssue = errors.New("acme: the authority issued another certificate than was ordered")
)

// Options configure a Manager. Directory, AgreeToTerms and Dir are required, and Store for Manage.
type Options struct {
	Directory    string      // URL of the authority's directory
	AgreeToTerms bool        // of the authority: without it, it makes no account
	Dir          string      // made with mode 0700; of one process at a time
	Lock         *os.File    // of Dir, from the process that this one replaces (Manager.Lock); nil takes it anew
	Store        *mtls.Store // of Manage

	Contact []string     // URLs such as mailto:admin@example.com
	Client  *http.Client // for requests to the authority; nil: one with a timeout of 30 s
	// NoHTTP and NoTLS switch a way of proving control off, because its port does not reach the
	// Manager. Otherwise both are offered, and either may be used.
	NoHTTP, NoTLS bool
	// Account binds the ACME account to one that was made elsewhere (RFC 8555 7.3.4); nil for most
	// authorities.
	Account *ExternalAccount
	// Report gets every attempt and how it ended; nil drops them. It may be called concurrently, and must
	// not block.
	Report func(Event)
	// Default makes the first certificate that is managed the Store's default.
	Default bool

	now func() time.Time // tests
}

// ExternalAccount is an account with the authority that was made without ACME.
type ExternalAccount struct {
	KeyID  string
	MACKey string // base64url, as authorities give it
}

// Event is an attempt to obtain or renew a certificate.
type Event struct {
	Names   []string
	Renewal bool
	Err     error     // nil: the certificate is in the Store
	Next    time.Time // of the next attempt
}

// Manager obtains and renews certificates. Its methods may be called concurrently.
type Manager struct {
	o       Options
	lock    *dirLock
	client  acmez.Client
	solver  *solver
	account accountState

	mu      sync.Mutex
	managed []*managed
	demands []*OnDemand
	wake    chan struct{} // there may be something to do
}

// parallel bounds the orders under way.
const parallel = 4

// New opens the folder, which no other process may use until Close.
func New(o Options) (*Manager, error) {
	switch {
	case o.Directory == "" || o.Dir == "":
		return nil, fmt.Errorf("%w: Directory and Dir are required", ErrOptions)
	case !o.AgreeToTerms:
		return nil, fmt.Errorf("%w: the authority's terms of service are not agreed to", ErrOptions)
	case o.NoHTTP && o.NoTLS:
		return nil, fmt.Errorf("%w: no way to prove control of a name is left", ErrOptions)
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 30 * time.Second}
	}
	lock, err := lockDir(o.Dir, o.Lock)
	if err != nil {
		return nil, err
	}
	m := &Manager{o: o, lock: lock, solver: newSolver(), wake: make(chan struct{}, 1)}
	m.client = acmez.Client{
		Client:           &acme.Client{Directory: o.Directory, HTTPClient: o.Client, UserAgent: "millrace"},
		ChallengeSolvers: map[string]acmez.Solver{},
	}
	if !o.NoHTTP {
		m.client.ChallengeSolvers[acme.ChallengeTypeHTTP01] = httpSolver{m.solver}
	}
	if !o.NoTLS {
		m.client.ChallengeSolvers[acme.ChallengeTypeTLSALPN01] = tlsSolver{m.solver}
	}
	return m, nil
}

// Close releases the folder. End Run first.
func (m *Manager) Close() error { return m.lock.Close() }

// Lock returns a duplicate of the lock of the folder, for Options.Lock of a process that replaces this one. The folder is locked until
// both have closed it.
func (m *Manager) Lock() (*os.File, error) {
	fd, err := unix.FcntlInt(m.lock.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.lock.f.Name()), nil
}

// Manage adds a certificate for names: DNS names or IP addresses. One that is stored goes to the
// Store at once, even if it has expired; Run obtains what is missing. Put many calls into a Batch of the
// Store.
func (m *Manager) Manage(names ...string) error {
	if m.o.Store == nil {
		return fmt.Errorf("%w: Manage needs a Store", ErrOptions)
	}
	names, err := normalNames(names)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known(names) != nil {
		return nil
	}
	c := &managed{names: names, to: []destination{{m.o.Store, m.o.Default && len(m.managed) == 0}}}
	if err := m.restore(c); err != nil {
		return err
	}
	m.managed = append(m.managed, c)
	m.poke()
	return nil
}

// Certificate is a certificate of Set.
type Certificate struct {
	Names   []string
	Store   *mtls.Store // that gets it; certificates of the same names may go to several
	Default bool        // in the Store
}

// Set has certificates managed, and no others. Those that were managed before go on as they were. What a Store got stays there.
// With an error nothing changes.
func (m *Manager) Set(list []Certificate) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all, fresh []*managed
	moved := map[*managed][]destination{}
	for _, one := range list {
		names, err := normalNames(one.Names)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(o *managed) bool { return slices.Equal(o.names, names) })
		if i < 0 {
			i = len(all)
			c := m.known(names)
			if c == nil {
				c = &managed{names: names}
				fresh = append(fresh, c)
			}
			all = append(all, c)
		}
		moved[all[i]] = append(moved[all[i]], destination{one.Store, one.Default})
	}
	for _, c := range fresh {
		c.to = moved[c]
		if err := m.restore(c); err != nil {
			return err
		}
	}
	for _, c := range all {
		if err := c.move(moved[c]); err != nil {
			return err
		}
	}
	m.managed = all
	m.poke()
	return nil
}

// Restore puts a certificate into its Store if the folder has one, without managing it. What the folder has of it and cannot be read is an
// error.
func (m *Manager) Restore(c Certificate) error {
	names, err := normalNames(c.Names)
	if err != nil {
		return err
	}
	return m.restore(&managed{names: names, to: []destination{{c.Store, c.Default}}})
}

// known returns the certificate that is managed for names, nil if none is. The caller holds m.mu.
func (m *Manager) known(names []string) *managed {
	i := slices.IndexFunc(m.managed, func(o *managed) bool { return slices.Equal(o.names, names) })
	if i < 0 {
		return nil
	}
	return m.managed[i]
}

// normalNames returns names in lower case, without the dot at the end.
func normalNames(names []string) (list []string, err error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: none given", ErrName)
	}
	for _, n := range names {
		n = strings.ToLower(strings.TrimSuffix(n, "."))
		if err := checkName(n); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// CheckName returns why a name has no certificate by ACME, nil if it may have one.
func CheckName(name string) error { return checkName(strings.ToLower(strings.TrimSuffix(name, "."))) }

func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// checkName accepts what the two challenges can prove.
func checkName(name string) error {
	if net.ParseIP(name) != nil {
		return nil
	}
	if strings.HasPrefix(name, "*.") {
		return fmt.Errorf("%w: %q: wildcards are proven by DNS only (RFC 8555 8.4)", ErrName, name)
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	bad := len(name) > 253 || !strings.Contains(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		bad = bad || label == "" || len(label) > 63 || strings.Trim(label, letters) != "" || label[0] == '-' || label[len(label)-1] == '-'
	}
	if bad {
		return fmt.Errorf("%w: %q", ErrName, name)
	}
	return nil
}

// Run obtains and renews certificates until ctx ends, and returns its error.
func (m *Manager) Run(ctx context.Context) error {
	for {
		next := m.Renew(ctx)
		timer := time.NewTimer(max(next.Sub(m.o.now()), time.Second))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		case <-m.wake:
			timer.Stop()
		}
	}
}

// longestSleep bounds the time between two looks at the clock, which may be set.
const longestSleep = time.Hour

// Renew does what is due now and returns when something will be due next. Run calls it.
func (m *Manager) Renew(ctx context.Context) time.Time {
	all := m.attended()
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for _, c := range all {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			m.attend(ctx, c)
		})
	}
	wg.Wait()
	next := m.o.now().Add(longestSleep)
	for _, c := range all {
		if at := c.nextLook(); at.Before(next) {
			next = at
		}
	}
	return next
}

// attend asks for renewal information if it is time to, and obtains the certificate if it is due.
func (m *Manager) attend(ctx context.Context, c *managed) {
	c.busy.Lock()
	defer c.busy.Unlock()
	now := m.o.now()
	leaf := c.leaf()
	if leaf != nil && !now.Before(c.nextARI()) {
		m.askARI(ctx, c, leaf, now)
	}
	if now.Before(c.due()) {
		return
	}
	err := error(nil)
	if c.permits != nil && leaf != nil { // it may have been permitted for a time
		err = c.permits(ctx)
	}
	if err == nil {
		err = m.obtain(ctx, c)
	}
	if ctx.Err() != nil {
		return // not the authority's failure
	}
	c.ended(err, m.o.now())
	if stored := m.saveState(c); stored != nil && err == nil {
		err = stored
	}
	if m.o.Report != nil {
		m.o.Report(Event{Names: c.names, Renewal: leaf != nil, Err: err, Next: c.due()})
	}
}

// obtain orders a certificate and puts it into the files and the Store.
func (m *Manager) obtain(ctx context.Context, c *managed) error {
	account, err := m.account.get(ctx, m)
	if err != nil {
		return fmt.Errorf("account: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	csr, err := acmez.NewCSR(key, c.names)
	if err != nil {
		return err
	}
	order, err := acmez.OrderParametersFromCSR(account, csr)
	if err != nil {
		return err
	}
	if c.namesReplaced() {
		order.Replaces = c.leaf()
	}
	certs, err := m.client.ObtainCertificate(ctx, order)
	if err != nil {
		m.account.failed(err)
		return err
	}
	if len(certs) == 0 {
		return fmt.Errorf("%w: none", ErrBadIssue)
	}
	file, pair, err := pairOf(certs[0].ChainPEM, key)
	if err != nil {
		return err
	}
	if err := checkIssue(pair.Leaf, c.names, m.o.now()); err != nil {
		return err
	}
	if err := secretfile.Write(m.pairPath(c), file); err != nil {
		return err
	}
	return m.install(c, pair)
}

// checkIssue checks that a certificate is what was ordered.
func checkIssue(leaf *x509.Certificate, names []string, now time.Time) error {
	for _, n := range names {
		if err := leaf.VerifyHostname(n); err != nil {
			return fmt.Errorf("%w: %w", ErrBadIssue, err)
		}
	}
	if !now.Before(leaf.NotAfter) {
		return fmt.Errorf("%w: it expired on %v", ErrBadIssue, leaf.NotAfter)
	}
	return nil
}

// install puts a certificate into its stores.
func (m *Manager) install(c *managed, pair tls.Certificate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.to {
		if err := d.set(c.names[0], pair); err != nil {
			return err
		}
	}
	c.cert, c.pair = pair.Leaf, pair
	return nil
}

// destination is a store that gets a certificate.
type destination struct {
	store     *mtls.Store
	isDefault bool
}

func (d destination) set(name string, pair tls.Certificate) error {
	return d.store.Set("acme:"+name, pair, d.isDefault)
}

// move has a certificate go to stores, which get it at once if there is one.
func (c *managed) move(to []destination) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range to {
		if c.cert == nil || slices.Contains(c.to, d) {
			continue
		}
		if err := d.set(c.names[0], c.pair); err != nil {
			return err
		}
	}
	c.to = to
	return nil
}

// Attach makes a server's config answer the challenges of tls-alpn-01. Other connections are left
// to the config: only a hello that asks for the protocol acme-tls/1 alone is the authority's. Attach
// before the config is used.
func (m *Manager) Attach(config *tls.Config) {
	choose := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c := m.solver.configFor(hello); c != nil {
			return c, nil
		}
		if choose != nil {
			return choose(hello)
		}
		return nil, nil
	}
}

// HTTPAnswer returns the answer to a challenge of http-01 by the path of a request with GET or HEAD, for servers without net/http.
func (m *Manager) HTTPAnswer(path string) (answer string, ok bool) { return m.solver.answer(path) }

// HTTPHandler answers the challenges of http-01 and passes all other requests to next; nil answers
// them with 404. It belongs on port 80 of the names.
func (m *Manager) HTTPHandler(next http.Handler) http.Handler {
	if next == nil {
		next = http.NotFoundHandler()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.solver.serveHTTP(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// Status describes a managed certificate.
type Status struct {
	Names    []string
	NotAfter time.Time // zero while there is no certificate
	Next     time.Time // of the next attempt: the renewal, or after a failure
	FromARI  bool      // the authority chose the time of the renewal
	Failures int       // in sequence
	LastErr  string    // of the last failure; empty after success
}

// Status returns the managed certificates in the order of Manage, and then those on demand.
func (m *Manager) Status() (all []Status) {
	for _, c := range m.attended() {
		all = append(all, c.status())
	}
	return all
}
