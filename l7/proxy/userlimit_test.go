package proxy

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/ratelimit"
)

// known is an Authority for which the user is the field x-user.
type known struct{}

func (known) Names() []string { return nil }

func (known) authorize(x guarding, g *Guard) bool {
	user := only(x.request.Fields, "x-user")
	if user == "" {
		x.challenge(g, "Test", "user")
		return false
	}
	x.holding().user = append(x.hold.user[:0], user...)
	return true
}

func userRequest(path, user string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a\r\nX-User: " + user + "\r\n\r\n"
}

// A rate limit by user counts each user, whatever the address, and requests without credentials cost none.
func TestRateLimitsByUser(t *testing.T) {
	l := NewRateLimit("u", RateKey{User: true, Prefix4: 32, Prefix6: 64}, ratelimit.Options{Requests: 2, Interval: time.Second, Keys: 64}, 1)
	r := newMemRig(t, func(r *memRig, _ *Tree) {
		r.rule.Guard = &Guard{UserLimits: []*RateLimit{l}, Auth: known{}, Counts: NewGuardCounts(1)}
	})
	expect := func(user, want string) {
		t.Helper()
		if got := r.ask(userRequest("/", user)); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%q: %.40q, want %s", user, got, want)
		}
	}
	for range 5 {
		expect("", "401")
	}
	for _, user := range []string{"a", "b"} {
		expect(user, "200")
		expect(user, "200")
		expect(user, "429")
	}
	r.pass(time.Second)
	expect("a", "200")
	r.nothingLeft()
}

// Requests of a user beyond the bound get 429, those of others go on, and each that ends gives its place back.
func TestConcurrencyByUser(t *testing.T) {
	per := NewUserPlaces(2)
	p := newPlaced(t, PlacesOptions{Requests: 3, Pending: 9, Wait: time.Minute})
	p.rule.Guard = &Guard{PerUser: per, Places: p.places, Auth: known{}, Counts: NewGuardCounts(1)}
	ask := func(path, user string) string {
		c := p.connect(memHTTP1)
		c.Write([]byte(userRequest(path, user)))
		p.run()
		return string(c.Take())
	}
	for i, want := range []string{"", "", "429", "429"} {
		got := ask("/a"+string('0'+rune(i)), "a")
		if got != "" && want == "" || !strings.HasPrefix(got, "HTTP/1.1 "+want) && want != "" || want != "" && headerOf(got, "retry-after") != "1" {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
	if got := ask("/b", "b") + ask("/c", "c"); got != "" || per.Users() != 3 { // the last waits for a place of the route
		t.Errorf("others: %q, %d users", got, per.Users())
	}
	if !slices.Equal(p.reached, []string{"/a0", "/a1", "/b"}) {
		t.Errorf("%q", p.reached)
	}
	p.answer("/a0")
	if got := ask("/a4", "a"); got != "" || p.places.Status().Pending != 1 {
		t.Errorf("after one has ended: %q, %+v", got, p.places.Status())
	}
	per.Set(1)
	p.answer("/a1")
	if got := ask("/a5", "a"); !strings.HasPrefix(got, "HTTP/1.1 429") {
		t.Errorf("with a lower bound: %q", got)
	}
	for _, path := range []string{"/b", "/c", "/a4"} {
		p.answer(path)
	}
	if n := per.Users(); n != 0 {
		t.Errorf("%d users stay", n)
	}
	p.nothingLeft()
}

// Names of one kind of user are not those of another.
func TestUsersOfEachKind(t *testing.T) {
	named := &x509.Certificate{RawSubject: []byte("s"), Subject: pkix.Name{Names: []pkix.AttributeTypeAndValue{{}}}, RawSubjectPublicKeyInfo: []byte("s")}
	nameless := &x509.Certificate{RawSubjectPublicKeyInfo: []byte("s")}
	at := netip.MustParseAddr("192.0.2.1")
	seen := map[string]int{}
	for i, c := range []struct {
		user string
		peer *x509.Certificate
		at   netip.Addr
	}{
		{"s", nil, at}, {"", named, at}, {"", nameless, at}, {"", nil, at}, {"", nil, netip.MustParseAddr("192.0.2.2")}, {"192.0.2.1", nil, at}, {"s2", nil, at},
	} {
		x := guarding{&exchange{hold: &hold{user: []byte(c.user), client: c.at}, client: &clientInfo{peer: c.peer}}}
		key := string(x.appendUser(nil))
		if before, ok := seen[key]; ok {
			t.Errorf("%d counts as %d: %q", i, before, key)
		}
		seen[key] = i
	}
	both := guarding{&exchange{hold: &hold{user: []byte("s"), client: at}, client: &clientInfo{peer: named}}}
	if key := string(both.appendUser(nil)); seen[key] != 0 {
		t.Errorf("credentials come before the certificate: %q", key)
	}
	mapped := guarding{&exchange{hold: &hold{client: netip.MustParseAddr("::ffff:192.0.2.1")}, client: &clientInfo{}}}
	if key := string(mapped.appendUser(nil)); seen[key] != 3 {
		t.Errorf("%q", key)
	}
}

// A pool with a queue serves as many requests as it may, and the others in their order; those beyond the queue, and those that have waited
// for too long, get 503 with Retry-After.
func TestRequestsWaitForTheirPool(t *testing.T) {
	p := newPlaced(t, PlacesOptions{Requests: 100, Pending: 1, Wait: time.Second})
	p.rule.Guard = nil
	q := NewPlaces(PlacesOptions{Requests: 2, Pending: 2, Wait: 5 * time.Second})
	p.to.Places = q
	c := p.askAll("/a", "/b", "/c", "/d", "/e")
	full := func(got string) {
		t.Helper()
		if !strings.HasPrefix(got, "HTTP/1.1 503 ") || headerOf(got, "retry-after") != "5" || !strings.Contains(got, "connection_limit_reached") {
			t.Errorf("%q", got)
		}
	}
	full(string(c[4].Take()))
	if st := q.Status(); st != (PlacesStatus{Used: 2, Pending: 2, Full: 1}) || !slices.Equal(p.reached, []string{"/a", "/b"}) {
		t.Errorf("%+v, %q", st, p.reached)
	}
	p.pass(3 * time.Second)
	p.answer("/b")
	p.pass(3 * time.Second)
	full(string(c[3].Take()))
	if st := q.Status(); st != (PlacesStatus{Used: 2, Full: 1, Timeouts: 1}) || !slices.Equal(p.reached, []string{"/a", "/b", "/c"}) {
		t.Errorf("%+v, %q", st, p.reached)
	}
	more := p.askAll("/f", "/g")
	more[0].Abort() // it leaves the queue
	p.run()
	c[2].Abort() // its request ends
	p.run()
	if !slices.Equal(p.reached, []string{"/a", "/b", "/c", "/g"}) {
		t.Errorf("%q", p.reached)
	}
	for _, path := range []string{"/a", "/g"} {
		p.answer(path)
	}
	if st := q.Status(); st.Used != 0 || st.Pending != 0 {
		t.Errorf("%+v", st)
	}
	q.Set(PlacesOptions{}) // a reload without a queue
	p.askAll("/h", "/i", "/j")
	if n := len(p.reached); n != 7 {
		t.Errorf("without a bound: %q", p.reached)
	}
	for _, path := range []string{"/h", "/i", "/j"} {
		p.answer(path)
	}
	p.nothingLeft()
}

// A reload that takes the queue away frees those that wait in it.
func TestAQueueThatIsTakenAway(t *testing.T) {
	p := newPlaced(t, PlacesOptions{Requests: 100, Pending: 1, Wait: time.Second})
	p.rule.Guard = nil
	p.to.Places = NewPlaces(PlacesOptions{Requests: 1, Pending: 5, Wait: time.Minute})
	p.askAll("/a", "/b", "/c")
	p.to.Places.Set(PlacesOptions{})
	p.run()
	if !slices.Equal(p.reached, []string{"/a", "/b", "/c"}) {
		t.Errorf("%q", p.reached)
	}
	for _, path := range p.reached {
		p.answer(path)
	}
	p.nothingLeft()
}
