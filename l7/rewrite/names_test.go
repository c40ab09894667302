package rewrite

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/semantics"
)

func TestCollidingNames(t *testing.T) {
	with := NewNames([]string{"x-tenant", "x_user", "x-tenant", "x.id", "x-id"})
	for name, want := range map[string]struct{ every, with bool }{
		"x-forwarded-for": {}, "x-real-ip": {}, "client-cert": {}, "accept": {}, "x_custom": {}, "a.b": {}, "user-agent": {}, "x-forwarded-foo": {}, "forwarded": {},
		"x_forwarded_for": {true, true}, "x-forwarded_for": {true, true},
		"x_forwarded-proto": {true, true}, "x.forwarded.host": {true, true}, "x_forwarded_anything": {true, true}, "x~real!ip": {true, true}, "client_cert": {true, true}, "client-cert_chain": {true, true},
		"x-forwarded-client_cert": {true, true}, "x_forwarded_client_cert": {true, true}, "content_length": {true, true}, "transfer.encoding": {true, true}, "early_data": {true, true},
		"x-tenant": {}, "x_tenant": {false, true}, "x.tenant": {false, true},
		"x_user": {}, "x-user": {false, true}, "x.user": {false, true}, "xuser": {},
		"x.id": {}, "x-id": {}, "x_id": {false, true},
	} {
		if got := (*Names)(nil).Collides(name); got != want.every {
			t.Errorf("%s: %v with every gateway", name, got)
		}
		if got := with.Collides(name); got != want.with {
			t.Errorf("%s: %v with rules", name, got)
		}
	}
}

func TestCollidingFieldsAreLeftOut(t *testing.T) {
	fields := []semantics.Field{{Name: "accept", Value: "1"}, {Name: "x_tenant", Value: "2"}, {Name: "x-tenant", Value: "3"}, {Name: "x_forwarded_for", Value: "4"}}
	n := NewNames([]string{"x-tenant"})
	text := func(fields []semantics.Field) string {
		var s []string
		for _, f := range fields {
			s = append(s, f.Value)
		}
		return strings.Join(s, " ")
	}
	if got := text(n.Append(nil, fields)); got != "1 3" {
		t.Errorf("passed on: %s", got)
	}
	if got := text((*Names)(nil).Append(nil, fields)); got != "1 2 3" {
		t.Errorf("passed on by every gateway: %s", got)
	}
	if !n.Any(fields) || n.Any(fields[:1]) {
		t.Error("Any is wrong")
	}
	if got := text(n.Trailers(slices.Clone(fields))); got != "1 4" { // a parser has dropped what speaks of the client
		t.Errorf("trailers: %s", got)
	}
	buf := make([]semantics.Field, 0, 8)
	if got := testing.AllocsPerRun(100, func() { buf = n.Append(buf[:0], fields) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// The look at first byte and length passes no name that collides, of any length and first byte.
func TestTheQuickLookMissesNoNameThatCollides(t *testing.T) {
	const marks = "-_.~!#$%&'*+^`|"
	n := NewNames([]string{"x-tenant", "_odd", "-", strings.Repeat("long-", 20), "a_b"})
	names := slices.Clone(n.own)
	for _, more := range []int{1, 2, 40, 51, 52, 300} {
		names = append(names, claimPrefix+strings.Repeat("a", more))
	}
	collide := 0
	for _, name := range names {
		for i := range len(name) {
			for _, c := range []byte(marks + "ax") {
				changed := []byte(name)
				changed[i] = c
				if s := string(changed); n.collides(s) {
					if collide++; !n.mayCollide(s) || !n.Collides(s) {
						t.Errorf("%q collides", s)
					}
				}
			}
		}
	}
	if collide < 500 || n.mayCollide("accept") || n.mayCollide("user-agent") || n.Collides("") {
		t.Errorf("%d names collide, or usual ones are looked at again", collide)
	}
}
