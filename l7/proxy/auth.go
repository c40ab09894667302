package proxy

import (
	"strings"
	"time"

	"github.com/millrace/millrace/l7/auth"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// Authority decides by its credentials whether a request is served: Basic, Bearer or ForwardAuth.
type Authority interface {
	// authorize reports whether the request goes on. Otherwise it was answered, or waits.
	authorize(x guarding, g *Guard) bool
	// Names are the fields that it sets in requests: those of clients are removed.
	Names() []string
}

// loginTime bounds the wait of a request for the hash of its password: logins before it may each take a second.
const loginTime = 30 * time.Second

// Basic asks for a name and a password (RFC 7617).
type Basic struct {
	Realm string
	Users *auth.Users
}

// Names implements Authority.
func (b *Basic) Names() []string { return nil }

func (b *Basic) authorize(x guarding, g *Guard) bool {
	name, password, ok := auth.Credentials(only(x.request.Fields, "authorization"))
	if !ok {
		b.challenge(x, g)
		return false
	}
	switch h := x.holding(); b.Users.Check(name, password) {
	case auth.Granted:
		h.user = append(h.user[:0], name...)
		return true
	case auth.Denied:
		b.challenge(x, g)
		return false
	}
	v, w := &verification{}, x.w
	name = strings.Clone(name)
	err := b.Users.Verify(name, password, func(ok bool) {
		w.Loop.Do(func() { v.done(x.exchange, func() { b.verified(x, g, name, ok) }) })
	})
	if err != nil {
		x.refuseBy(g, GuardAuth, "busy", errUnavailable)
		return false
	}
	x.waits = v
	x.holdUntil(loginTime, func(x guarding) { x.refuseBy(g, GuardAuth, "busy", errUnavailable) })
	return false
}

// verified goes on with a request whose password was compared.
func (b *Basic) verified(x guarding, g *Guard, name string, ok bool) {
	if !ok {
		b.challenge(x, g)
		return
	}
	x.hold.user = append(x.hold.user[:0], name...)
	x.resume()
}

func (b *Basic) challenge(x guarding, g *Guard) {
	x.challenge(g, `Basic realm="`+b.Realm+`", charset="UTF-8"`, "password")
}

// challenge answers a request without valid credentials (RFC 9110 11.6.1).
func (x guarding) challenge(g *Guard, how, reason string) {
	h := x.holding()
	h.extra = append(h.extra, semantics.Field{Name: "www-authenticate", Value: how})
	x.refuseBy(g, GuardAuth, reason, errUnauthorized)
}

// verification is the wait of a request for a goroutine.
type verification struct{ state verificationState }

// verificationState is the state of a verification. Only the loop of its request reads and writes it.
type verificationState uint8

const (
	verifying verificationState = iota
	withdrawn                   // the request has ended
)

func (v *verification) withdraw(*exchange) { v.state = withdrawn }

// done goes on with a request that still waits.
func (v *verification) done(x *exchange, then func()) {
	if v.state == withdrawn {
		return
	}
	x.w.Enter()
	x.waits = nil
	x.on(admitted)
	then()
}

// ClaimField is a field of requests that has a claim of the token.
type ClaimField struct{ Name, Claim string }

// Bearer asks for a JSON Web Token (RFC 6750).
type Bearer struct {
	Realm  string
	Tokens *auth.Tokens
	Cookie string // that may have the token where there is no Authorization; "" is none
	Fields []ClaimField
	User   string            // claim that names the user; "" is the subject
	caches []auth.TokenCache // of each worker
}

// NewBearer prepares a Bearer for a number of workers.
func NewBearer(b Bearer, workers int) *Bearer {
	b.caches = make([]auth.TokenCache, workers)
	return &b
}

// Names implements Authority.
func (b *Bearer) Names() (names []string) {
	for i := range b.Fields {
		names = append(names, b.Fields[i].Name)
	}
	return names
}

func (b *Bearer) authorize(x guarding, g *Guard) bool {
	token, ok := b.token(x.request.Fields)
	if !ok {
		x.challenge(g, `Bearer realm="`+b.Realm+`"`, "token missing")
		return false
	}
	claims, err := b.Tokens.Check(&b.caches[x.w.id], time.Now(), token)
	switch {
	case err == auth.ErrNoKeys:
		x.refuseBy(g, GuardAuth, err.Error(), errUnavailable)
		return false
	case err != nil:
		x.challenge(g, `Bearer realm="`+b.Realm+`", error="invalid_token", error_description="`+err.Error()+`"`, err.Error())
		return false
	}
	h := x.holding()
	if h.user = append(h.user[:0], claims.Subject...); b.User != "" {
		h.user = append(h.user[:0], claims.Text(b.User)...)
	}
	for i := range b.Fields {
		f := &b.Fields[i]
		h.names = append(h.names, f.Name)
		if v := claims.Text(f.Claim); v != "" && semantics.IsValue(v) {
			h.identity = append(h.identity, semantics.Field{Name: f.Name, Value: v})
		}
	}
	return true
}

// token returns the token of a request. Of several lines of Authorization none counts, and of several tokens that differ, in cookies or
// beside Authorization, none either: all of them reach the backend, which may read another one than was verified.
func (b *Bearer) token(fields []semantics.Field) (token string, ok bool) {
	lines := 0
	for i := range fields {
		if fields[i].Name == "authorization" {
			lines++
		}
	}
	if lines > 0 {
		var scheme string
		if scheme, token, ok = strings.Cut(only(fields, "authorization"), " "); !ok || !strings.EqualFold(scheme, "bearer") {
			return "", false
		}
		token = strings.TrimLeft(token, " ")
	}
	if b.Cookie == "" {
		return token, ok
	}
	same := true
	key := rewrite.Key{By: rewrite.ByCookie, Name: b.Cookie}
	key.Each(&rewrite.Source{Fields: fields}, func(value string) {
		if !ok {
			token, ok = value, true
		}
		same = same && value == token
	})
	if !ok || !same {
		return "", false
	}
	return token, true
}
