package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorsNameColumnAndExpectation(t *testing.T) {
	for _, tc := range []struct {
		text   string
		column int
		want   string
	}{
		{"tcp prt 80", 5, `found "prt", expected "and", "or" or the end; did you mean "port"?`},
		{"tcp port", 9, "found the end of the expression, expected an expression"},
		{"tpc", 1, `found "tpc", expected a qualifier such as "host", or a protocol; did you mean "tcp"?`},
		{"ip and (udp or", 15, "found the end of the expression, expected an expression"},
		{"(tcp", 5, `found the end of the expression, expected "and", "or" or ")"`},
		{"tcp and 80", 9, `"80" has no qualifier: write one such as "host" or "port" before it`},
		{"ip[0:3] = 1", 6, "cannot load 3 bytes, only 1, 2 or 4"},
		{"port 65536", 6, "port number 65536 is greater than 65535"},
		{"net 10.0.0.1/8", 5, `"10.0.0.1" has bits set outside its mask`},
		{"host 1.2.3.400", 6, `"1.2.3.400" is not an IPv4 address`},
		{"len = 089", 7, `"089" is not an octal number`},
		{"len = 0x1ffffffff", 7, "the hexadecimal number 0x1ffffffff does not fit in 32 bits"},
		{"type mgt", 1, `"type" does not apply to EN10MB`},
		{"src proto 6", 5, `"proto" takes no direction`},
		{"host nowhere.example", 6, `unknown host "nowhere.example"`},
		{"ether host 1.2.3.4", 12, `"ether host" does not take "1.2.3.4"`},
		{"udp port ssh", 10, `"ssh" is not a port of udp`},
		{"proto tpc", 7, `unknown protocol "tpc"; did you mean "tcp"?`},
		{"vlan 5000", 6, "VLAN tag 5000 is greater than 4095"},
		{"addr1 host 10.0.0.1", 12, `"addr1" applies to 802.11 addresses only`},
		{"ra port 80", 9, `"ra" applies to 802.11 addresses only`},
		{"len / 0 = 1", 5, "division by zero"},
		{"tcp; udp", 4, `found ";", expected "and", "or" or the end`},
	} {
		_, err := Compile(tc.text, LinkEthernet, Options{Names: testNames})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %v, want an *Error", tc.text, err)
			continue
		}
		if want := fmt.Sprintf("column %d: %s", tc.column, tc.want); e.Error() != want {
			t.Errorf("%q: %q, want %q", tc.text, e, want)
		}
		if e.Text != tc.text || e.Offset != tc.column-1 {
			t.Errorf("%q: error for %q at %d", tc.text, e.Text, e.Offset)
		}
	}
}

func TestExcerptMarksTheMistake(t *testing.T) {
	_, err := Compile("tcp\tprt 80", LinkEthernet, Options{})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if got, want := e.Excerpt(), "tcp\tprt 80\n   \t^^^"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A load outside the packet rejects it, whatever else the expression says.
func TestLoadOutsideThePacketRejectsIt(t *testing.T) {
	tcp := append(make([]byte, 12), be16(typeIPv4)...)
	tcp = append(tcp, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, ipTCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	tcp = append(tcp, be16(1234, 80)...)
	for text, want := range map[string]bool{
		"tcp port 80":                 true,
		"tcp[20] = 1 or tcp port 80":  false,
		"tcp port 80 or tcp[20] = 1":  true,
		"not tcp[20] = 1":             false,
		"udp[20] = 1 or tcp port 80":  true,
		"ether[0xffffffff] = 0 or ip": false,
		"len / (1 - 1) = 0 or ip":     false,
		"":                            true,
	} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Match(tcp, len(tcp)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	f, err := Compile("ip6 protochain 17 or vxlan and tcp[13] & 2 != 0 or geneve", LinkEthernet, Options{})
	if err != nil {
		t.Fatal(err)
	}
	packets := zoo(LinkEthernet, 200)
	if n := testing.AllocsPerRun(10, func() {
		for _, p := range packets {
			f.Match(p.data, int(p.len))
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Texts of every size and depth end in a filter or an error.
func TestDeepAndLongTexts(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("(", 20000), strings.Repeat("not ", 20000) + "tcp", strings.Repeat("-", 20000) + "1 = 1",
		strings.Repeat("ip[", 20000), strings.Repeat("tcp or ", 2000) + "udp", strings.Repeat("x", maxText+1),
		strings.Repeat("1+", 20000) + "1 = 1", strings.Repeat("1%", 20000) + "1 = 1", strings.Repeat("vlan ", 10000),
	} {
		f, err := Compile(text, LinkEthernet, Options{})
		if err == nil {
			f.Match(make([]byte, 100), 100)
			f.CBPF()
		}
	}
}

// A list of many ports is longer than conditional jumps reach.
func TestLongProgramsJumpFar(t *testing.T) {
	text := "port 1"
	for i := 2; i <= 100; i++ {
		text += fmt.Sprint(" or ", i)
	}
	f, err := Compile(text, LinkEthernet, Options{})
	if err != nil {
		t.Fatal(err)
	}
	prog, err := f.CBPF()
	if err != nil {
		t.Fatal(err)
	}
	matched := 0
	for i, p := range zoo(LinkEthernet, 500) {
		want := f.Match(p.data, int(p.len))
		if want {
			matched++
		}
		if got := interpret(prog, p.data, p.len, nil) != 0; got != want {
			t.Errorf("packet %d: %v, Match says %v", i, got, want)
		}
	}
	if matched == 0 {
		t.Error("nothing matched")
	}
}

// Texts that are read alike have the same tree.
func TestPrecedenceAndInheritedQualifiers(t *testing.T) {
	for _, same := range [][2]string{
		{"ip[8] & 1 + 2 = 3", "ip[8] & (1 + 2) = 3"},
		{"ip[8] | 4 & 2 << 1 = 3", "ip[8] | (4 & (2 << 1)) = 3"},
		{"ip[8] - 2 - 1 = 3", "(ip[8] - 2) - 1 = 3"},
		{"ip[8] * 2 + 1 = 3", "(ip[8] * 2) + 1 = 3"},
		{"ip[8] % 2 + 1 = 3", "ip[8] % (2 + 1) = 3"},
		{"-ip[8] + 1 = 3", "(-ip[8]) + 1 = 3"},
		{"ip[9- 1] = 6", "ip[9 - 1] = 6"},
		{"tcp port 80 or 443", "tcp port 80 or tcp port 443"},
		{"tcp port (80 or not 443)", "tcp port 80 or not tcp port 443"},
		{"tcp port 80 and (udp) and 90", "tcp port 80 and (udp) and tcp port 90"},
		{"tcp or udp and ip", "(tcp or udp) and ip"},
		{"not tcp and udp", "(not tcp) and udp"},
		{"net 10", "net 10.0.0.0/8"},
		{"src or dst host 1.2.3.4", "host 1.2.3.4"},
	} {
		var trees [2]string
		for i, text := range same {
			f, err := Compile(text, LinkEthernet, Options{})
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			trees[i] = f.Tree()
		}
		if trees[0] != trees[1] {
			t.Errorf("%q is\n%snot as %q\n%s", same[0], trees[0], same[1], trees[1])
		}
	}
}

// Match and the classic BPF program agree at the edges of fields.
func TestBoundaries(t *testing.T) {
	ipv4 := func(ttl byte) []byte {
		b := append(make([]byte, 12), be16(typeIPv4)...)
		return append(b, 0x45, 0, 0, 40, 0, 0, 0, 0, ttl, ipTCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0)
	}
	llc := func(length uint16) []byte {
		return join(make([]byte, 12), be16(length), []byte{0x42, 0x42, 3}, make([]byte, 40))
	}
	geneve := join(ipv4(64)[:34], be16(9, 6081, 0, 0), []byte{33, 0, 0x65, 0x58, 0, 0, 5, 0}, make([]byte, 33*4), make([]byte, 12),
		be16(typeARP), make([]byte, 28))
	geneve[23] = ipUDP
	for _, tc := range []struct {
		text string
		pkt  []byte
		want bool
	}{
		{"stp", llc(1500), true},
		{"stp", llc(1501), false},
		{"1 << ip[8] = 0x80000000", ipv4(31), true},
		{"1 << ip[8] = 0", ipv4(32), true},
		{"0x80000000 >> ip[8] = 1", ipv4(31), true},
		{"ip[ip[8] * 0x2000000] = 0 or ip", ipv4(64), false},
		{"not ip[ip[8] * 0x2000000] = 0", ipv4(64), false},
		{"ip[ip[8] * 0x2000000] = 0x45", ipv4(128), true}, // the product is 0 in 32 bits
		{"geneve and arp", geneve, true},
		{"ip[21:1] = 0", ipv4(64), true},
		{"ip[21:2] = 0 or ip", ipv4(64), false},
	} {
		f, err := Compile(tc.text, LinkEthernet, Options{})
		if err != nil {
			t.Fatal(err)
		}
		prog, err := f.CBPF()
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Match(tc.pkt, len(tc.pkt)); got != tc.want {
			t.Errorf("%q: Match %v", tc.text, got)
		}
		if got := interpret(prog, tc.pkt, uint32(len(tc.pkt)), nil) != 0; got != tc.want {
			t.Errorf("%q: classic BPF %v\n%s", tc.text, got, Disassemble(prog))
		}
	}
}
