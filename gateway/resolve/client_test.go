package resolve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/millrace/millrace/internal/testkit/testdns"
)

// client returns a client that asks a server, and sees no file of the machine. Its time-out is one that only a server which never
// answers meets.
func client(t *testing.T, servers ...netip.AddrPort) *Client {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	return NewClient(Options{Servers: servers, Timeout: time.Minute, Family: AnyFamily, MaxTTL: time.Hour, ResolvConf: none, Hosts: none})
}

// show returns targets as text.
func show(a Answer, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var list []string
	for _, t := range a.Targets {
		list = append(list, fmt.Sprintf("%s*%d", t.At, t.Weight))
	}
	return fmt.Sprintf("%s %v", strings.Join(list, " "), a.TTL)
}

func host(name string) Name { return Name{Host, name, 80} }

func TestLookupOfAddresses(t *testing.T) {
	s := testdns.Start(t)
	c := client(t, s.Addr)
	set := func(typ dnsmessage.Type, a testdns.Answer) { s.Set("a.example.", typ, a) }
	set(dnsmessage.TypeA, testdns.Answer{TTL: 30, Records: []dnsmessage.ResourceBody{testdns.A("192.0.2.2"), testdns.A("192.0.2.1"), testdns.A("192.0.2.1")}})
	set(dnsmessage.TypeAAAA, testdns.Answer{TTL: 20, Records: []dnsmessage.ResourceBody{testdns.AAAA("2001:db8::1")}})
	for _, name := range []string{"a.example", "A.Example."} {
		if got, want := show(c.Lookup(t.Context(), host(name))), "192.0.2.1:80*1 192.0.2.2:80*1 [2001:db8::1]:80*1 20s"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	c.opt.Family = IPv4
	if got, want := show(c.Lookup(t.Context(), host("a.example"))), "192.0.2.1:80*1 192.0.2.2:80*1 30s"; got != want {
		t.Errorf("of IPv4: %s", got)
	}
	c.opt.Family = IPv6
	if got, want := show(c.Lookup(t.Context(), host("a.example"))), "[2001:db8::1]:80*1 20s"; got != want {
		t.Errorf("of IPv6: %s", got)
	}
	c.opt.Family = AnyFamily
	set(dnsmessage.TypeAAAA, testdns.Answer{}) // it has none: that is no failure
	if got, want := show(c.Lookup(t.Context(), host("a.example"))), "192.0.2.1:80*1 192.0.2.2:80*1 30s"; got != want {
		t.Errorf("without AAAA: %s", got)
	}
	set(dnsmessage.TypeAAAA, testdns.Answer{Code: dnsmessage.RCodeServerFailure}) // half of an answer would take the other half away
	if _, err := c.Lookup(t.Context(), host("a.example")); !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "ServerFailure") {
		t.Errorf("with a failing AAAA: %v", err)
	}
	set(dnsmessage.TypeA, testdns.Answer{})
	set(dnsmessage.TypeAAAA, testdns.Answer{})
	if _, err := c.Lookup(t.Context(), host("a.example")); !errors.Is(err, ErrNoAddress) {
		t.Errorf("without an address: %v", err)
	}
	if _, err := c.Lookup(t.Context(), host("b.example")); !errors.Is(err, ErrNoName) {
		t.Errorf("without the name: %v", err)
	}
}

func TestAliasesAndTheirTimes(t *testing.T) {
	s := testdns.Start(t)
	c := client(t, s.Addr)
	c.opt.Family = IPv4
	s.Set("a.example.", dnsmessage.TypeA, testdns.Answer{TTL: 7, Aliases: []string{"B.example.", "c.example."}, Records: []dnsmessage.ResourceBody{testdns.A("192.0.2.1")}})
	if got, want := show(c.Lookup(t.Context(), host("a.example"))), "192.0.2.1:80*1 7s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Set("a.example.", dnsmessage.TypeA, testdns.Answer{Aliases: []string{"b.example.", "a.example."}}) // a circle
	if _, err := c.Lookup(t.Context(), host("a.example")); !errors.Is(err, ErrMessage) {
		t.Errorf("a circle of aliases: %v", err)
	}
}

// TestAnswersOfOthersAreIgnored has answers come first that do not fit the question, as an attacker sends them that does not see it.
func TestAnswersOfOthersAreIgnored(t *testing.T) {
	s := testdns.Start(t)
	c := client(t, s.Addr)
	c.opt.Family = IPv4
	s.Set("a.example.", dnsmessage.TypeA, testdns.Answer{TTL: 5, Forged: true, Records: []dnsmessage.ResourceBody{testdns.A("192.0.2.1")}})
	if got, want := show(c.Lookup(t.Context(), host("a.example"))), "192.0.2.1:80*1 5s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestOtherWaysToAsk(t *testing.T) {
	s := testdns.Start(t)
	c := client(t, s.Addr)
	c.opt.Family = IPv4
	var many []dnsmessage.ResourceBody
	for i := range 300 {
		many = append(many, testdns.A(fmt.Sprintf("192.0.2.%d", i%256)))
	}
	s.Set("big.example.", dnsmessage.TypeA, testdns.Answer{ByTCP: true, Records: many})
	s.Set("old.example.", dnsmessage.TypeA, testdns.Answer{NoEDNS: true, Records: many[:1]})
	if a, err := c.Lookup(t.Context(), host("big.example")); err != nil || len(a.Targets) != 256 || s.Asked("tcp", "big.example.") != 1 {
		t.Errorf("by TCP: %d targets, %v, asked %d times", len(a.Targets), err, s.Asked("tcp", "big.example."))
	}
	if got, want := show(c.Lookup(t.Context(), host("old.example"))), "192.0.2.0:80*1 0s"; got != want {
		t.Errorf("without EDNS: %s", got)
	}
}

// TestTheNextServerIsAsked has a server that refuses, and one that says nothing, before the one that answers.
func TestTheNextServerIsAsked(t *testing.T) {
	bad, silent, good := testdns.Start(t), testdns.Start(t), testdns.Start(t)
	bad.Set("a.example.", dnsmessage.TypeA, testdns.Answer{Code: dnsmessage.RCodeRefused})
	silent.Set("a.example.", dnsmessage.TypeA, testdns.Answer{Silent: true})
	good.SetA("a.example.", "192.0.2.1")
	c := client(t, bad.Addr, silent.Addr, good.Addr)
	c.opt.Family, c.opt.Timeout = IPv4, 20*time.Millisecond
	for try := 0; ; try++ { // under load the good one may be late, too
		got := show(c.Lookup(t.Context(), host("a.example")))
		if got == "192.0.2.1:80*1 0s" {
			break
		}
		if try == 1000 {
			t.Fatal(got)
		}
	}
	if bad.Asked("udp", "a.example.") == 0 || silent.Asked("udp", "a.example.") == 0 {
		t.Error("the first servers were not asked")
	}
	c.opt.Servers = []netip.AddrPort{silent.Addr}
	if _, err := c.Lookup(t.Context(), host("a.example")); err == nil || !strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("of a silent server: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Lookup(ctx, host("a.example")); err == nil {
		t.Error("a look-up goes on although it is canceled")
	}
}

func TestLookupOfServices(t *testing.T) {
	s := testdns.Start(t)
	c := client(t, s.Addr)
	name := Name{Kind: Service, Name: "_http._tcp.example"}
	srv := func(records ...dnsmessage.ResourceBody) {
		s.Set("_http._tcp.example.", dnsmessage.TypeSRV, testdns.Answer{TTL: 60, Records: records})
	}
	s.SetA("a.example.", "192.0.2.1", "192.0.2.2")
	s.SetA("b.example.", "192.0.2.3")
	s.SetA("c.example.", "192.0.2.4")
	srv(testdns.SRV(2, 9, 81, "c.example."), testdns.SRV(1, 5, 8080, "a.example."), testdns.SRV(1, 0, 8081, "b.example."))
	if got, want := show(c.Lookup(t.Context(), name)), "192.0.2.1:8080*5 192.0.2.2:8080*5 192.0.2.3:8081*1 0s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	srv(testdns.SRV(1, 5, 80, "gone.example."), testdns.SRV(2, 9, 81, "c.example."))
	if got, want := show(c.Lookup(t.Context(), name)), "192.0.2.4:81*9 0s"; got != want {
		t.Errorf("the first priority has no address: %s, want %s", got, want)
	}
	srv(testdns.SRV(0, 0, 0, "."))
	if _, err := c.Lookup(t.Context(), name); !errors.Is(err, ErrNoService) {
		t.Errorf("a service that is decidedly not there: %v", err)
	}
	srv(testdns.SRV(0, 0, 80, "gone.example."))
	if _, err := c.Lookup(t.Context(), name); !errors.Is(err, ErrNoName) || !strings.Contains(err.Error(), "gone.example.") {
		t.Errorf("a target without a name: %v", err)
	}
	s.Set("a.example.", dnsmessage.TypeA, testdns.Answer{Code: dnsmessage.RCodeServerFailure})
	srv(testdns.SRV(1, 5, 80, "a.example."), testdns.SRV(1, 5, 80, "b.example."))
	if _, err := c.Lookup(t.Context(), name); !errors.Is(err, ErrServer) {
		t.Errorf("a target whose look-up fails: %v", err)
	}
}

func TestFilesOfTheMachine(t *testing.T) {
	s := testdns.Start(t)
	s.SetA("a.example.", "192.0.2.1")
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(hosts, "# a comment\n192.0.2.7 box box.example # 192.0.2.8 other\n2001:db8::7\tBOX\n\nwrong box\n")
	c := NewClient(Options{Timeout: time.Minute, Family: AnyFamily, MaxTTL: time.Hour, ResolvConf: conf, Hosts: hosts})
	for name, want := range map[string]string{
		"box": "192.0.2.7:80*1 [2001:db8::7]:80*1 5s", "BOX.example.": "192.0.2.7:80*1 5s", "localhost": "127.0.0.1:80*1 [::1]:80*1 5s", "a.localhost": "127.0.0.1:80*1 [::1]:80*1 5s",
	} {
		if got := show(c.Lookup(t.Context(), host(name))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if _, err := c.Lookup(t.Context(), host("other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without resolv.conf: %v", err)
	}
	write(conf, "search example\n; nameserver 192.0.2.9\nnameserver\n")
	if _, err := c.Lookup(t.Context(), host("other")); !errors.Is(err, errNoServers) {
		t.Errorf("without a server: %v", err)
	}
	write(conf, "nameserver 192.0.2.9\nnameserver 2001:db8::9#x\noptions ndots:1\nnameserver 2001:db8::9\n")
	list, err := readResolvConf(conf)
	if want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.9:53"), netip.MustParseAddrPort("[2001:db8::9]:53"), netip.MustParseAddrPort("[2001:db8::9]:53")}; err != nil || !slices.Equal(list, want) {
		t.Errorf("%v, %v", list, err)
	}
}

func TestWrongNamesAreRefused(t *testing.T) {
	if _, err := appendQuery(nil, 1, strings.Repeat("a", 300), dnsmessage.TypeA, payload); err == nil {
		t.Error("a name of 300 characters is asked for")
	}
	c := client(t, netip.MustParseAddrPort("127.0.0.1:1"))
	if _, err := c.Lookup(t.Context(), host(strings.Repeat("a", 300))); err == nil {
		t.Error("and looked up")
	}
}

// FuzzParseAnswer has every input answered without a panic, and never more records than it has room for.
func FuzzParseAnswer(f *testing.F) {
	q, err := appendQuery(nil, 7, "a.example.", dnsmessage.TypeA, payload)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q)
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, Response: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Answers: []dnsmessage.Resource{
			{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("a.example."), Class: dnsmessage.ClassINET}, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("b.example.")}},
			{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("b.example."), Class: dnsmessage.ClassINET}, Body: testdns.A("192.0.2.1")},
		},
	}
	b, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, msg []byte) {
		list, err := parseAnswer(msg, 7, "a.example.", dnsmessage.TypeA)
		if err != nil && len(list) > 0 {
			t.Errorf("%d records and an error: %v", len(list), err)
		}
		for _, r := range list {
			if !r.addr.Is4() || r.ttl < 0 {
				t.Errorf("%+v", r)
			}
		}
		if 12*len(list) > len(msg) {
			t.Errorf("%d records of %d bytes", len(list), len(msg))
		}
	})
}
