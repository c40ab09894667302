package websocket

import (
	"strings"
	"testing"
)

func TestServerAcceptsTheFirstOfferThatItCan(t *testing.T) {
	const name = "permessage-deflate"
	for _, c := range []struct {
		prefer Deflate
		offers string
		want   string // "" declines
	}{
		{Deflate{}, name, ""},
		{Deflate{Enabled: true}, "", ""},
		{Deflate{Enabled: true}, "x-webkit-deflate-frame", ""},
		{Deflate{Enabled: true}, name, name},
		{Deflate{Enabled: true}, "foo; bar=1, " + name + ", baz", name},
		{Deflate{Enabled: true}, name + "; client_max_window_bits", name},
		{Deflate{Enabled: true}, name + " ; \tclient_max_window_bits = 15", name},
		{Deflate{Enabled: true}, name + "; client_max_window_bits=\"10\"", name + "; client_max_window_bits=10"},
		{Deflate{Enabled: true}, name + "; client_max_window_bits=\"1\\0\"", name + "; client_max_window_bits=10"},
		{Deflate{Enabled: true}, name + "; server_max_window_bits=8", name + "; server_max_window_bits=8"},
		{Deflate{Enabled: true}, name + "; server_max_window_bits=15", name + "; server_max_window_bits=15"},
		{Deflate{Enabled: true}, name + "; server_no_context_takeover; client_no_context_takeover", name + "; server_no_context_takeover; client_no_context_takeover"},
		{Deflate{Enabled: true, ServerNoTakeover: true, ClientNoTakeover: true}, name, name + "; server_no_context_takeover; client_no_context_takeover"},
		{Deflate{Enabled: true, ServerWindowBits: 10}, name + "; server_max_window_bits=12", name + "; server_max_window_bits=10"},
		{Deflate{Enabled: true, ServerWindowBits: 10}, name, name + "; server_max_window_bits=10"},
		{Deflate{Enabled: true, ClientWindowBits: 10}, name, name}, // not offered: the client must not be limited
		{Deflate{Enabled: true, ClientWindowBits: 10}, name + "; client_max_window_bits", name + "; client_max_window_bits=10"},
		{Deflate{Enabled: true, ClientWindowBits: 10}, name + "; client_max_window_bits=9", name + "; client_max_window_bits=9"},
		// Invalid offers are declined, and the next is looked at.
		{Deflate{Enabled: true}, name + "; server_max_window_bits", ""},
		{Deflate{Enabled: true}, name + "; server_max_window_bits=7", ""},
		{Deflate{Enabled: true}, name + "; server_max_window_bits=16", ""},
		{Deflate{Enabled: true}, name + "; server_max_window_bits=08", ""},
		{Deflate{Enabled: true}, name + "; server_max_window_bits=+8", ""},
		{Deflate{Enabled: true}, name + "; client_max_window_bits=abc", ""},
		{Deflate{Enabled: true}, name + "; client_max_window_bits=016", ""},
		{Deflate{Enabled: true}, name + "; server_no_context_takeover=1", ""},
		{Deflate{Enabled: true}, name + "; client_no_context_takeover=true", ""},
		{Deflate{Enabled: true}, name + "; unknown", ""},
		{Deflate{Enabled: true}, name + "; server_max_window_bits=9; server_max_window_bits=9", ""},
		{Deflate{Enabled: true}, name + "; unknown, " + name + "; server_max_window_bits=99, " + name + "; server_max_window_bits=9", name + "; server_max_window_bits=9"},
	} {
		list, err := parseExtensions([]string{c.offers})
		if err != nil {
			t.Errorf("%q: %v", c.offers, err)
			continue
		}
		agreed, got := acceptDeflate(list, c.prefer)
		if got != c.want || agreed.Enabled != (c.want != "") {
			t.Errorf("%+v, %q: %q, want %q", c.prefer, c.offers, got, c.want)
		}
		if got == "" {
			continue
		}
		back, err := parseExtensions([]string{got})
		if err != nil {
			t.Errorf("response %q: %v", got, err)
			continue
		}
		d, err := parseDeflate(back[0].params)
		if err != nil || d.serverNoTakeover != agreed.ServerNoTakeover || d.clientNoTakeover != agreed.ClientNoTakeover ||
			bitsOr15(d.serverBits) != agreed.ServerWindowBits || bitsOr15(d.clientBits) != agreed.ClientWindowBits {
			t.Errorf("response %q does not say what was agreed: %+v, %v", got, agreed, err)
		}
	}
}

func TestMalformedExtensions(t *testing.T) {
	for _, s := range []string{
		";", "a;", "a;;b", "a b", "a;b=", "a;b=\"", "a;b=\"x", "a;b=\"\"", "a;b=\"x y\"", "a;b=c d", "a=b", "a;=b", "\"a\"", "a;b=\"c\\",
		strings.Repeat("a,", 100), "a" + strings.Repeat(";b", 100),
	} {
		if list, err := parseExtensions([]string{s}); err == nil {
			t.Errorf("%.20q is read as %v", s, list)
		}
	}
	for _, s := range []string{"", " , ,", "a", "a, b", ",a;b;c=d;e=\"f\" , b"} {
		if _, err := parseExtensions([]string{s}); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	if list, err := parseExtensions([]string{"a", "b;c"}); err != nil || len(list) != 2 || list[1].params[0].name != "c" {
		t.Errorf("two headers: %v, %v", list, err)
	}
}

func TestClientConfirmsTheResponse(t *testing.T) {
	const name = "permessage-deflate"
	on := Deflate{Enabled: true}
	for _, c := range []struct {
		prefer   Deflate
		response string
		ok       bool
		want     Deflate
	}{
		{on, "", true, Deflate{}},
		{Deflate{}, "", true, Deflate{}},
		{Deflate{}, name, false, Deflate{}},
		{on, "other", false, Deflate{}},
		{on, name + ", " + name, false, Deflate{}},
		{on, name + ", other", false, Deflate{}},
		{on, name, true, Deflate{Enabled: true, ServerWindowBits: 15, ClientWindowBits: 15}},
		{on, name + "; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=9; client_max_window_bits=8", true, Deflate{Enabled: true, ServerNoTakeover: true, ClientNoTakeover: true, ServerWindowBits: 9, ClientWindowBits: 8}},
		{on, name + "; client_max_window_bits", false, Deflate{}},
		{on, name + "; server_max_window_bits=7", false, Deflate{}},
		{on, name + "; unknown", false, Deflate{}},
		{on, name + "; server_no_context_takeover; server_no_context_takeover", false, Deflate{}},
		{Deflate{Enabled: true, ServerNoTakeover: true}, name, false, Deflate{}},
		{Deflate{Enabled: true, ServerWindowBits: 10}, name, false, Deflate{}},
		{Deflate{Enabled: true, ServerWindowBits: 10}, name + "; server_max_window_bits=11", false, Deflate{}},
		{Deflate{Enabled: true, ServerWindowBits: 10}, name + "; server_max_window_bits=9", true, Deflate{Enabled: true, ServerWindowBits: 9, ClientWindowBits: 15}},
		{Deflate{Enabled: true, ClientWindowBits: 10}, name + "; client_max_window_bits=11", false, Deflate{}},
		{Deflate{Enabled: true, ClientWindowBits: 10, ClientNoTakeover: true}, name, true, Deflate{Enabled: true, ClientNoTakeover: true, ServerWindowBits: 15, ClientWindowBits: 10}},
	} {
		list, err := parseExtensions([]string{c.response})
		if err != nil {
			t.Fatal(err)
		}
		got, err := confirmDeflate(list, c.prefer)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("%+v, %q: %+v, %v", c.prefer, c.response, got, err)
		}
	}
}

// TestOffersAreAccepted negotiates every combination of preferences of both ends.
func TestOffersAreAccepted(t *testing.T) {
	var all []Deflate
	for _, no := range []int{0, 1, 2, 3} {
		for _, server := range []int{0, 8, 12, 15} {
			for _, client := range []int{0, 8, 12, 15} {
				all = append(all, Deflate{Enabled: true, ServerNoTakeover: no&1 != 0, ClientNoTakeover: no&2 != 0, ServerWindowBits: server, ClientWindowBits: client})
			}
		}
	}
	for _, client := range all {
		for _, server := range all {
			offers, err := parseExtensions([]string{offerDeflate(client)})
			if err != nil {
				t.Fatal(err)
			}
			s, response := acceptDeflate(offers, server)
			chosen, _ := parseExtensions([]string{response})
			c, err := confirmDeflate(chosen, client)
			if err != nil || c != s {
				t.Fatalf("client %+v, server %+v: %q gives %+v and %+v, %v", client, server, response, c, s, err)
			}
		}
	}
}

func FuzzNegotiation(f *testing.F) {
	f.Add("permessage-deflate; client_max_window_bits; server_max_window_bits=\"1\\0\", x;y", uint8(3), uint8(9))
	f.Add(", a ;b = c", uint8(0), uint8(0))
	f.Fuzz(func(t *testing.T, header string, flags, bits uint8) {
		prefer := Deflate{Enabled: true, ServerNoTakeover: flags&1 != 0, ClientNoTakeover: flags&2 != 0, ServerWindowBits: 8 + int(bits&7), ClientWindowBits: 8 + int(bits>>4&7)}
		list, err := parseExtensions([]string{header})
		if err != nil {
			return
		}
		for _, e := range list {
			if !isToken(e.name) {
				t.Fatalf("name %q", e.name)
			}
			for _, p := range e.params {
				if !isToken(p.name) || p.valued != isToken(p.value) {
					t.Fatalf("parameter %+v", p)
				}
			}
		}
		if agreed, response := acceptDeflate(list, prefer); response != "" {
			if err := agreed.check(); err != nil || agreed.ServerWindowBits > prefer.ServerWindowBits {
				t.Fatalf("%+v, %v", agreed, err)
			}
			if _, err := parseExtensions([]string{response}); err != nil {
				t.Fatalf("response %q: %v", response, err)
			}
		}
		if agreed, err := confirmDeflate(list, prefer); err == nil && agreed.Enabled {
			if err := agreed.check(); err != nil || agreed.ServerWindowBits > prefer.ServerWindowBits || agreed.ClientWindowBits > prefer.ClientWindowBits {
				t.Fatalf("%+v, %v", agreed, err)
			}
		}
	})
}
