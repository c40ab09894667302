package signature

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// one parses a rule with the options given, behind a header.
func one(t *testing.T, options string) *Rule {
	t.Helper()
	return whole(t, "alert tcp any any -> any any ("+options+" sid:1;)")
}

func whole(t *testing.T, text string) *Rule {
	t.Helper()
	f := Parse("test", text, nil)
	if len(f.Rules) != 1 {
		t.Fatalf("%s\n%v%v", text, f.Errors, f.Skipped)
	}
	return f.Rules[0]
}

// errorsOf returns the errors of rules as "LINE:COLUMN message".
func errorsOf(f *File) (s []string) {
	for _, e := range append(slices.Clone(f.Errors), f.Skipped...) {
		s = append(s, fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Msg))
	}
	return s
}

func TestHeaderIsParsed(t *testing.T) {
	r := whole(t, `drop udp [192.0.2.0/24, !192.0.2.7,2001:db8::/32] [53,1000:1010,!1005] <> !198.18.0.0/15 !:1023 (msg:"a\; b"; sid:7; gid:3; rev:2;)`)
	if r.Action != Drop || r.Protocol.IP != UDP || !r.Both || r.SID != 7 || r.GID != 3 || r.Rev != 2 || r.Msg != "a; b" {
		t.Errorf("%+v", r)
	}
	for a, want := range map[string]bool{"192.0.2.6": true, "192.0.2.7": false, "192.0.2.8": true, "192.0.3.0": false, "2001:db8::1": true, "2001:db9::": false} {
		if r.Src.Contains(netip.MustParseAddr(a)) != want {
			t.Errorf("source %s: %v", a, !want)
		}
	}
	for a, want := range map[string]bool{"198.17.255.255": true, "198.18.0.0": false, "198.19.255.255": false, "198.20.0.0": true, "::1": true} {
		if r.Dst.Contains(netip.MustParseAddr(a)) != want {
			t.Errorf("destination %s: %v", a, !want)
		}
	}
	for p, want := range map[uint16]bool{53: true, 54: false, 1000: true, 1005: false, 1010: true, 1011: false} {
		if r.SrcPorts.Contains(p) != want {
			t.Errorf("source port %d: %v", p, !want)
		}
	}
	if r.DstPorts.Contains(1023) || !r.DstPorts.Contains(1024) || !r.DstPorts.Contains(65535) {
		t.Error("destination ports are not those from 1024 on")
	}
}

func TestVariables(t *testing.T) {
	cfg := &Config{}
	if err := cfg.ParseVars("vars", "vars:\n  address-groups:\n    HOME_NET: \"[192.0.2.0/24]\" # comment\n    A: $HOME_NET\n  port-groups:\n    P_PORTS: 8080\nother:\n  X: y\n"); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Set("Q_PORTS=[1,$P_PORTS]"); err != nil {
		t.Fatal(err)
	}
	f := Parse("test", "alert tcp $A $Q_PORTS -> $EXTERNAL_NET any (sid:1;)", cfg)
	if len(f.Rules) != 1 {
		t.Fatal(f.Errors)
	}
	r := f.Rules[0]
	if !r.Src.Contains(netip.MustParseAddr("192.0.2.1")) || r.Dst.Contains(netip.MustParseAddr("192.0.2.1")) || !r.SrcPorts.Contains(8080) || r.SrcPorts.Contains(80) {
		t.Error("a variable has another value")
	}
	cfg.Addresses["LOOP"] = "[$LOOP]"
	if f := Parse("test", "alert tcp $LOOP any -> any any (sid:1;)", cfg); len(f.Errors) != 1 {
		t.Errorf("a variable that names itself: %v", f.Errors)
	}
}

// TestErrorsHaveTheirPlace wants every error of a text, with its line and column.
func TestErrorsHaveTheirPlace(t *testing.T) {
	text := `# a comment
alret tcp any any -> 192.0.2.300 any (msg:"x"; content:"a|4|"; noxase; sid:1;)
alert tcp any any -> any any (content:"abc"; depth:2; \
   pcre:"/a(b/"; \
   sid:2;)

alert tcp $NOPE any -> any 70000 (flow:to_server,to_client; asn1:oversize_length 5; sid:3;)
alert tcp any any -> any any (content:"abc"; within:5; offset:1; sid:4)
alert tcp any any -> any any (sid:2;)
alert tcp any any any any (content:"x";)
alert http any any -> any any (flow:to_client; http.uri; content:"x"; sid:5;)
`
	want := []string{
		`2:1 a rule begins with alert, pass, drop or reject, not "alret"; did you mean alert?`,
		`2:22 "192.0.2.300" is not an address, a prefix or a variable`,
		`2:60 a hexadecimal digit is missing`,
		`2:64 "noxase" is not a keyword; did you mean nocase?`,
		`4:14 regular expression: a group has no end`,
		`3:39 depth 2 is less than the 3 bytes of the content`,
		`7:11 variable $NOPE is not defined`,
		`7:28 "70000" is not a port, a range N:M or a variable`,
		`7:40 a packet goes to the server or to the client, not to both`,
		`8:66 an option ends with a semicolon`,
		`8:71 a rule has a sid`,
		`8:39 a content has offset and depth, or distance and within, not both`,
		`9:1 sid 2 is that of the rule in line 3 too`,
		`10:27 the header has 6 words; it is ACTION PROTOCOL SOURCE PORTS -> DESTINATION PORTS`,
		`10:40 a rule has a sid`,
		`11:1 the rule's flow is of one direction, its buffers are of the other`,
	}
	f := Parse("test", text, nil)
	if got := errorsOf(f); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if f.Read != 7 || len(f.Rules) != 0 {
		t.Errorf("%d rules read, %d loaded", f.Read, len(f.Rules))
	}
}

func TestErrorShowsItsPlace(t *testing.T) {
	f := Parse("local.rules", "alert tcp any any -> any any (msg:\""+strings.Repeat("x", 200)+"\"; nope; sid:1;)", nil)
	lines := strings.Split(f.Errors[0].Error(), "\n")
	if !strings.HasPrefix(lines[0], "local.rules:1:239: ") || len(lines[1]) > 100 || lines[1][strings.IndexByte(lines[2], '^'):][:4] != "nope" {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
}

// TestUnsupportedOptionsAreCounted wants rules with them left out, not loaded without them.
func TestUnsupportedOptionsAreCounted(t *testing.T) {
	f := Parse("test", `alert tcp any any -> any any (content:"a"; asn1:oversize_length 5; lua:x; sid:1;)
alert modbus any any -> any any (sid:2;)
alert tcp any any -> any any (pcre:"/(?R)/"; sid:3;)
# alert tcp any any -> any any (sid:4;)
# a comment
alert tcp any any -> any any (content:"a"; sid:5;)`, nil)
	if len(f.Rules) != 1 || len(f.Errors) != 0 || f.Read != 4 || f.Disabled != 1 || f.Options["content"] != 2 {
		t.Errorf("%d rules, %v, %d read, %d disabled", len(f.Rules), f.Errors, f.Read, f.Disabled)
	}
	for _, k := range []string{"asn1", "lua", "protocol modbus", "pcre recursion"} {
		if f.Missing[k] != 1 {
			t.Errorf("%s keeps %d rules from loading, want 1: %v", k, f.Missing[k], f.Missing)
		}
	}
}

func TestContents(t *testing.T) {
	r := one(t, `content:!"a|0d 0A|\"\;\\\:"; nocase; offset:3; depth:9; content:"xyz"; distance:-2; within:8; fast_pattern:1,2; content:"ab"; startswith; content:"z"; endswith;`)
	c := r.Parts[0].Tests
	if a := c[0].Content; string(a.Bytes) != "a\r\n\";\\:" || !a.Not || !a.NoCase || a.Offset != 3 || a.Depth != 9 || a.Relative {
		t.Errorf("%+v", a)
	}
	if b := c[1].Content; !b.Relative || b.Distance != -2 || b.Within != 8 || !b.HasWithin || !b.Fast || b.FastFrom != 1 || b.FastLen != 2 {
		t.Errorf("%+v", b)
	}
	if !c[2].Content.StartsWith || !c[3].Content.EndsWith {
		t.Error("startswith or endswith is lost")
	}
}

// TestBuffers wants the old modifiers and the new keywords to mean the same.
func TestBuffers(t *testing.T) {
	for _, text := range []string{
		`content:"POST"; http_method; content:"/a"; http_uri; content:"b"; distance:1; http_uri; pcre:"/x/U"; content:"raw";`,
		`http.method; content:"POST"; http.uri; content:"/a"; content:"b"; distance:1; pcre:"/x/"; pkt_data; content:"raw";`,
	} {
		r := one(t, text)
		var s []string
		for _, p := range r.Parts {
			s = append(s, fmt.Sprintf("%v:%d", p.Buffer, len(p.Tests)))
		}
		slices.Sort(s)
		if got := strings.Join(s, " "); got != "http.method:1 http.uri:3 payload:1" {
			t.Errorf("%s: %s", text, got)
		}
	}
	r := one(t, `dns.query; dotprefix; to_lowercase; content:".example.com"; endswith; dns.query; content:"x";`)
	if len(r.Parts) != 2 || !slices.Equal(r.Parts[0].Transforms, []Transform{DotPrefix, ToLower}) || len(r.Parts[1].Transforms) != 0 {
		t.Errorf("%+v", r.Parts)
	}
}

func TestNumbers(t *testing.T) {
	r := one(t, `byte_extract:2,1,len,relative,little; byte_test:4,!>=,0x10,len,string,hex; byte_jump:2,0,relative,align,multiplier 2,post_offset -3;`+
		`byte_math:bytes 1, offset 2, oper <<, rvalue len, result x; content:"a"; within:x; isdataat:!2,relative; bsize:3<>7; base64_decode:bytes 8,offset 2,relative;`)
	c := r.Parts[0].Tests
	if n := c[0].Number; n.Bytes != 2 || n.Offset != 1 || n.Var != 0 || !n.Relative || !n.Little {
		t.Errorf("%+v", n)
	}
	if n := c[1].Number; n.Op != GreaterEqual || !n.Not || n.Value != 16 || n.OffsetVar != 1 || n.Base != 16 {
		t.Errorf("%+v", n)
	}
	if n := c[2].Number; n.Align != 4 || n.Multiplier != 2 || n.Post != -3 {
		t.Errorf("%+v", n)
	}
	if n := c[3].Number; n.Op != ShiftLeft || n.ValueVar != 1 || n.Var != 1 {
		t.Errorf("%+v", n)
	}
	if c[4].Content.WithinVar != 2 || !c[5].IsDataAt.Not || c[6].Size != (Range{4, 6, false}) || *c[7].Base64 != (Base64{8, 2, true}) {
		t.Errorf("%+v", c[4:])
	}
}

// TestEndOfBuffer has isdataat where it says the same as endswith.
func TestEndOfBuffer(t *testing.T) {
	for options, ends := range map[string]bool{
		`content:"a"; isdataat:!1,relative;`: true, `content:!"a"; within:9; isdataat:!1,relative;`: true,
		`content:"a"; isdataat:!2,relative;`: false, `content:"a"; isdataat:!1;`: false, `content:"a"; isdataat:1,relative;`: false,
		`content:"a"; pcre:"/b/"; isdataat:!1,relative;`: false, `content:"a"; byte_extract:1,0,v; isdataat:!v,relative;`: false,
	} {
		tests := one(t, options).Parts[0].Tests
		if got := tests[0].Content.EndsWith; got != ends || (tests[len(tests)-1].Kind == TestIsDataAt) == ends {
			t.Errorf("%s: the content ends the buffer: %v", options, got)
		}
	}
}

func TestRanges(t *testing.T) {
	for text, want := range map[string]Range{
		"5": {5, 5, false}, "!5": {5, 5, true}, "<5": {0, 4, false}, ">5": {6, 100, false},
		"<=5": {0, 5, false}, ">=5": {5, 100, false}, "5<>8": {6, 7, false}, "5-8": {6, 7, false}, " > 5 ": {6, 100, false}, "0x10": {16, 16, false},
	} {
		if got, err := rangeOf(text, 100); err != nil || got != want {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "<0", "5<>6", "8<>5", "<<5", "-1"} {
		if got, err := rangeOf(text, 100); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestFlowAndPackets(t *testing.T) {
	r := one(t, `flow:established,from_client,no_stream; flags:S,12; dsize:>10; itype:8; stream_size:server,<,5; ttl:!64; ip_proto:!udp; fragbits:+MD;`)
	if r.Flow != (Flow{Dir: ToServer, Established: true, NoStream: true}) {
		t.Errorf("%+v", r.Flow)
	}
	want := []PacketTest{
		{Field: FieldFlags, Bits: BitTest{Bits: 2, Ignore: 0xc0}},
		{Field: FieldPayloadLen, Range: Range{11, 65535, false}},
		{Field: FieldICMPType, Range: Range{8, 8, false}},
		{Field: FieldStreamServer, Range: Range{0, 4, false}},
		{Field: FieldTTL, Range: Range{64, 64, true}},
		{Field: FieldIPProto, Range: Range{17, 17, true}},
		{Field: FieldFragBits, Bits: BitTest{Bits: 3, How: All}},
	}
	if !slices.Equal(r.Packet, want) {
		t.Errorf("got  %+v\nwant %+v", r.Packet, want)
	}
	for _, c := range []struct {
		test  BitTest
		flags uint8
		want  bool
	}{
		{BitTest{Bits: 2}, 2, true},
		{BitTest{Bits: 2}, 18, false},
		{BitTest{Bits: 2, Ignore: 16}, 18, true},
		{BitTest{Bits: 2, How: All}, 18, true},
		{BitTest{Bits: 3, How: Any}, 18, true},
		{BitTest{Bits: 3, How: None}, 16, true},
		{BitTest{Bits: 3, How: None}, 1, false},
	} {
		if c.test.Has(c.flags) != c.want {
			t.Errorf("%+v on %#x: %v", c.test, c.flags, !c.want)
		}
	}
}

func TestStateIsParsed(t *testing.T) {
	r := one(t, `flowbits:isset,a|b; flowbits:set,c; xbits:set,d,track ip_pair,expire 60; xbits:isset,e,track ip_src; flowbits:noalert;`+
		`threshold:type both, track by_dst, count 5, seconds 60; detection_filter:track by_src,count 2,seconds 3; priority:2;`)
	if !r.NoAlert || r.Priority != 2 || len(r.Bits) != 4 || !slices.Equal(r.Bits[0].Names, []string{"a", "b"}) || r.Bits[1].Op != Set {
		t.Errorf("%+v", r)
	}
	if r.Bits[2].Track != TrackPair || r.Bits[2].Expire != time.Minute || r.Bits[3].Expire != 30*time.Second {
		t.Errorf("%+v", r.Bits)
	}
	if *r.Limit != (Limit{Once, TrackDst, 5, time.Minute}) || *r.Detect != (Limit{AtLeast, TrackSrc, 2, 3 * time.Second}) {
		t.Errorf("%+v %+v", r.Limit, r.Detect)
	}
}

func TestCounters(t *testing.T) {
	r := one(t, `flowint:ET.a/b_1 , + ,1 ; flowint:ab,>=,4294967295; flowint:ab,=,cd; flowint:ab,notset; flowint:ab,isnotset; flowint:ab,isset,5;`)
	want := []Counter{
		{Op: CounterAdd, Name: "ET.a/b_1", Value: 1},
		{Op: CounterGreaterEqual, Name: "ab", Value: 1<<32 - 1},
		{Op: CounterSet, Name: "ab", Other: "cd"},
		{Op: CounterAbsent, Name: "ab"},
		{Op: CounterAbsent, Name: "ab"},
		{Op: CounterPresent, Name: "ab"},
	}
	if !slices.Equal(r.Counters, want) {
		t.Errorf("got  %+v\nwant %+v", r.Counters, want)
	}
	for _, v := range []string{"ab", "ab,+", "ab,+,", "a,+,1", "1b,+,1", "a-b,+,1", "ab,=>,1", "ab,=,4294967296", "ab,=,b", "ab,=,b.c", "ab,=,-1", "ab,=,1,2"} {
		if f := Parse("test", "alert ip any any -> any any (flowint:"+v+"; sid:1;)", nil); len(f.Errors) != 1 || !strings.HasPrefix(f.Errors[0].Msg, "flowint") {
			t.Errorf("%s: %v", v, f.Errors)
		}
	}
	for text, op := range counterOps {
		v := "flowint:ab," + text + ",7;"
		if got := one(t, v).Counters[0]; got.Op != op || got.Op.Condition() != !strings.Contains("=+-", text) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestClasses(t *testing.T) {
	classes, err := ParseClasses("c", "# comment\nconfig classification: bad-unknown,Potentially Bad Traffic,2\n")
	if err != nil || classes["bad-unknown"].Priority != 2 {
		t.Fatal(classes, err)
	}
	f := Parse("test", "alert ip any any -> any any (classtype:bad-unknown; sid:1;)\nalert ip any any -> any any (classtype:nope; sid:2;)", &Config{Classes: classes})
	if len(f.Rules) != 1 || f.Rules[0].Priority != 2 || len(f.Errors) != 1 {
		t.Errorf("%v %v", f.Rules, f.Errors)
	}
	if _, err := ParseClasses("c", "config classification: a,b\n"); err == nil {
		t.Error("a line without a priority is taken")
	}
}

// TestPublicRulesLoad reads the rule files of the folder MILLRACE_RULES, such as the public ET-open set, of which
// at least 95 % have to load.
func TestPublicRulesLoad(t *testing.T) {
	dir := os.Getenv("MILLRACE_RULES")
	if dir == "" {
		t.Skip("MILLRACE_RULES names no folder of rules")
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "*.rules"))
	active, loaded := 0, 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := Parse(filepath.Base(path), string(text), nil)
		active += f.Read
		loaded += len(f.Rules)
		for _, e := range f.Errors {
			t.Error(e)
		}
	}
	t.Logf("%d of %d active rules in %d files load", loaded, active, len(paths))
	if active == 0 || float64(loaded) < 0.95*float64(active) {
		t.Errorf("%d of %d active rules load, want 95 %%", loaded, active)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`alert tcp [1.2.3.4/8,!$HOME_NET] !80:90 <> any any (msg:"a"; content:!"a|41|\;"; nocase; distance:-1; within:4; pcre:"/a(b)\1/Ri"; byte_test:2,>,5,0,relative; flowbits:isset,a|b; sid:1;)`)
	f.Add(`alert http any any -> any any (http.uri; dotprefix; content:"x"; fast_pattern:0,1; urilen:5<>9,raw; \` + "\n" + ` threshold: type limit, track by_src, count 1, seconds 60; byte_extract:1,0,v; isdataat:!v; sid:2;)`)
	f.Add("#alert tcp any any -> any any (sid:3;)\n(")
	f.Fuzz(func(t *testing.T, text string) {
		file := Parse("fuzz", text, nil)
		lines := strings.Split(text, "\n")
		for _, e := range append(file.Errors, file.Skipped...) {
			if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 {
				t.Fatalf("error at %d:%d: %s", e.Line, e.Column, e.Msg)
			}
			_ = e.Error()
		}
		if file.Read < len(file.Rules) {
			t.Fatalf("%d rules of %d", len(file.Rules), file.Read)
		}
	})
}

// A rule that could never match is refused with the reason.
func TestRulesThatNeverMatchAreRefused(t *testing.T) {
	for options, want := range map[string]string{
		`http.uri; content:"abcdef"; bsize:5;`:         "at most 5 bytes",
		`http.uri; content:"abc"; offset:4; bsize:<6;`: "at most 5 bytes",

		`http.uri; content:"abc"; content:"def"; distance:0; bsize:5;`:                       "at most 5 bytes",
		`http.uri; content:"abc"; content:"def"; distance:-1; bsize:4;`:                      "at most 4 bytes",
		`http.uri; content:"ab"; content:"cd"; within:9; content:"e"; distance:2; bsize:<7;`: "at most 6 bytes",
		`http.host; content:"EVIL";`:                                                         "lower case",

		`content:"abcdef"; dsize:5;`:                                 "at most 5 bytes",
		`content:"abc"; offset:4; dsize:<6;`:                         "at most 5 bytes",
		`dsize:2<>6; content:"abc"; content:"def"; distance:0;`:      "at most 5 bytes",
		`content:"abc"; content:"def"; within:9; dsize:5;`:           "at most 5 bytes",
		`dsize:>5; content:"a"; isdataat:!4;`:                        "at most 4 bytes",
		`dsize:5; dsize:>6;`:                                         "numbers",
		`ttl:<5; ttl:>5;`:                                            "numbers",
		`content:"a"; isdataat:5; dsize:5;`:                          "at most 5 bytes",
		`content:"ab"; isdataat:4,relative; dsize:5;`:                "at most 5 bytes",
		`byte_test:1,=,1,5; dsize:5;`:                                "at most 5 bytes",
		`byte_jump:1,5; dsize:5;`:                                    "at most 5 bytes",
		`base64_decode:offset 5; base64_data; content:"a"; dsize:5;`: "at most 5 bytes",
		`http.uri; content:"abcdef"; urilen:5;`:                      "at most 5 bytes",
		`urilen:<6; http.uri; content:"abc"; offset:4;`:              "at most 5 bytes",
		`urilen:<6,raw; http.uri.raw; content:"abcdef";`:             "at most 5 bytes",
		`http.uri; bsize:>5; bsize:<3;`:                              "at most 2 bytes",
		`http.uri; content:"a"; depth:0; bsize:3;`:                   "less than",
		`http.uri; content:"abc"; depth:2;`:                          "less than",
		`http.uri; content:"a"; content:"abc"; within:2;`:            "less than",
		`http.uri; content:!"abc"; depth:2;`:                         "less than",
		`ja3.hash; content:"` + strings.Repeat("a", 33) + `";`:       "at most 32 bytes",
		`ja4.hash; content:"a"; offset:36;`:                          "at most 36 bytes",
		`tls.cert_fingerprint; content:"a"; bsize:60;`:               "at most 59 bytes",
		`http.method; content:"GET ";`:                               "no blanks",
		`mqtt.qos:0; mqtt.qos:2;`:                                    "exclude",

		`content:"a"; offset:-1;`:          "not negative",
		`content:"a"; depth:-1;`:           "not negative",
		`byte_test:2,>,5,-1;`:              "before the begin",
		`byte_jump:2,-4;`:                  "before the begin",
		`isdataat:-1;`:                     "before the begin",
		`absent;`:                          "behind the name of a buffer",
		`http.uri; content:"a"; absent;`:   "right behind",
		`http.uri; absent; content:"a";`:   "nothing is in it",
		`http.uri; absent:or_else;`:        "nothing is in it",
		`http.uri; absent:x; content:"a";`: "or_else",
		`app-layer-protocol:htp;`:          "is not an application protocol",
	} {
		f := Parse("test", "alert tcp any any -> any any ("+options+" sid:1;)", nil)
		if len(f.Errors) == 0 || !strings.Contains(f.Errors[0].Error(), want) {
			t.Errorf("%s: %v, want %q", options, f.Errors, want)
		}
	}
	for _, options := range []string{
		`http.uri; content:"abc"; content:"def"; distance:-1; bsize:5;`, `http.uri; content:"abc"; content:!"def"; distance:0; bsize:5;`,
		`http.uri; content:"abc"; pcre:"/x/"; content:"def"; distance:0; bsize:5;`, `http.host; content:"EVIL"; nocase;`, `http.host; content:"evil";`,
		`http.uri; content:"abc"; content:"def"; bsize:5;`, `http.uri; content:"abc"; content:"de"; distance:-9; bsize:5;`,
		`content:"abcde"; dsize:5;`, `content:!"abcdef"; dsize:5;`, `content:"abcdef"; dsize:!5;`,
		`content:"abc"; content:"def"; dsize:5;`, `content:"abcdef"; byte_extract:1,-6,x,relative; content:"b"; distance:0; dsize:6;`,
		`content:"a"; isdataat:4; dsize:5;`, `content:"a"; isdataat:!5; dsize:5;`, `content:"a"; isdataat:!4,relative; dsize:5;`, `byte_test:1,=,1,4; dsize:5;`,
		`byte_test:1,=,1,4,relative; dsize:4;`, `base64_decode:offset 4; base64_data; content:"abcdef"; dsize:5;`, `ttl:<5; ttl:!9;`, `ttl:>4; ttl:<6;`,
		`http.uri; content:"abcdef"; dsize:5;`, `http.uri; content:"abcde"; urilen:5;`, `urilen:<6,raw; http.uri; content:"abcdef";`, `pkt_data; to_sha256; content:"abcdef"; dsize:5;`,
		`ja3.hash; to_sha256; content:"` + strings.Repeat("a", 33) + `";`, `ja3.hash; content:"` + strings.Repeat("a", 32) + `";`, `http.method; content:!"GET ";`,
		`mqtt.qos:0; mqtt.qos:!2;`, `http.uri; content:"a"; startswith; bsize:>3;`,
		`http.uri; content:"abcde"; bsize:5;`, `http.uri; content:!"abcdef"; bsize:5;`, `content:"a"; distance:-4;`,
		`content:"a"; byte_test:2,>,5,-1,relative;`, `http.uri; content:"abcdef"; bsize:!5;`,
	} {
		if f := Parse("test", "alert tcp any any -> any any ("+options+" sid:1;)", nil); len(f.Rules) != 1 {
			t.Errorf("%s: %v", options, f.Errors)
		}
	}
}
