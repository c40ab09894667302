package signature

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// optionError returns the error of a rule with these options as "COLUMN message", counted from the first option; "" for none.
func optionError(options string) string {
	const header = "alert tcp any any -> any any ("
	f := Parse("test", header+options+" sid:1;)", nil)
	all := append(f.Errors, f.Skipped...)
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", all[0].Column-len(header), all[0].Msg)
}

// TestBoundsOfOptions has the last value that is taken and the first that is not.
func TestBoundsOfOptions(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	extracts := func(n int) (s string) {
		for i := range n {
			s += fmt.Sprintf("byte_extract:1,%d,v%d; ", i, i)
		}
		return s
	}
	for _, c := range []struct{ good, bad string }{
		{`content:"abc"; depth:3;`, `content:"abc"; depth:2;`},
		{`content:"abc"; within:3;`, `content:"abc"; within:2;`},
		{`content:"abc"; fast_pattern:1,2;`, `content:"abc"; fast_pattern:2,2;`},
		{`content:"abc"; fast_pattern:0,3;`, `content:"abc"; fast_pattern:0,0;`},
		{`content:"abc"; fast_pattern;`, `content:"abc"; fast_pattern; content:"d"; fast_pattern;`},
		{`content:"abc"; startswith;`, `content:"abc"; startswith; depth:3;`},
		{`content:"abc"; startswith; nocase;`, `content:"abc"; startswith; offset:1;`},
		{`content:"a"; content:"b"; startswith;`, `content:"a"; content:"b"; startswith; within:3;`},
		{`content:"` + long(MaxContent) + `";`, `content:"` + long(MaxContent+1) + `";`},
		{`content:"a"; offset:1048576;`, `content:"a"; offset:1048577;`},
		{`content:"a"; content:"b"; distance:-1048576;`, `content:"a"; content:"b"; distance:-1048577;`},
		{extracts(MaxVars), extracts(MaxVars + 1)},
		{`byte_test:23,=,1,0,string,dec;`, `byte_test:24,=,1,0,string,dec;`},
		{`byte_test:8,=,1,0;`, `byte_test:9,=,1,0;`},
		{`byte_test:1,=,1,0;`, `byte_test:0,=,1,0;`},
		{`byte_jump:1,0,align 2;`, `byte_jump:1,0,align 3;`},
		{`base64_decode:bytes 65535;`, `base64_decode:bytes 65536;`},
		{`base64_decode:offset 65535;`, `base64_decode:offset 65536;`},
		{`threshold:type limit,track by_src,count 1,seconds 2147483647;`, `threshold:type limit,track by_src,count 1,seconds 2147483648;`},
		{`threshold:type limit,track by_src,count 1,seconds 1;`, `threshold:type limit,track by_src,count 0,seconds 1;`},
		{`threshold:type limit,track by_src,count 1,seconds 1;`, `threshold:type limit,track by_src,count 1,seconds 0;`},
		{`xbits:set,a,track ip_src,expire 1;`, `xbits:set,a,track ip_src,expire 0;`},
		{`xbits:set,a,track ip_src,expire 2147483648;`, `xbits:set,a,track ip_src,expire 2147483649;`},
		{`flowbits:isset,a|b;`, `flowbits:set,a|b;`},
		{`flowbits:isnotset,a|b;`, `flowbits:toggle,a|b;`},
		{`priority:255;`, `priority:256;`},
		{`priority:1;`, `priority:0;`},
		{`rev:4294967295;`, `rev:4294967296;`},
		{`dsize:1<>3;`, `dsize:1<>2;`},
	} {
		if err := optionError(c.good); err != "" {
			t.Errorf("%.60s %s", c.good, err)
		}
		if optionError(c.bad) == "" {
			t.Errorf("%.60s is taken", c.bad)
		}
	}
}

// TestColumnsOfOptions wants an error at the byte that is wrong.
func TestColumnsOfOptions(t *testing.T) {
	for options, want := range map[string]string{
		`content:"ab|4g|";`:    "14 ",
		`content: !  "ab|4|";`: "18 ",
		`content:"ab\x";`:      "12 ",
		`content:"ab|41";`:     "12 ",
		`content:"a"b";`:       "11 ",
		`content:"a\";`:        "11 a backslash",
		`content:  abc;`:       "11 a text stands in double quotes",
		`content: ! abc;`:      "12 a text stands in double quotes",
		`pcre:"/ab/z";`:        "11 option \"z\"",
		`pcre:!"/ab/iz";`:      "13 option \"z\"",
		`pcre:"/ab(?R)/";`:     "13 pcre recursion",
		`pcre:"/ab[/";`:        "11 ",
		`pcre:"ab";`:           "7 ",
		`nocase:1;`:            "8 ",
		`msg:"x"; dsize:x;`:    "16 ",
		`msg:"x";  nope;`:      "11 ",
	} {
		if got := optionError(options); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", options, got, want)
		}
	}
	for header, want := range map[string]int{
		"alert tcp [192.0.2.1,192.0.2.300] any -> any any": 22,
		"alert tcp [192.0.2.1, !x] any -> any any":         24,
		"alert tcp [192.0.2.1,] any -> any any":            22,
		"alert tcp [ [192.0.2.1,x] ] any -> any any":       24,
		"alert tcp ! [$NO] any -> any any":                 34, // a header has no blanks outside of brackets: 8 words
		"alert tcp ![192.0.2.1,$NO] any -> any any":        23,
		"alert tcp [192.0.2.1 any -> any any":              37,
		"alert tcp any [1,70000] -> any any":               18,
		"alert tcp any ]80 -> any any":                     15, // brackets that close nothing change no depth
	} {
		f := Parse("test", header+" (sid:1;)", nil)
		if len(f.Errors) == 0 {
			t.Errorf("%s is taken", header)
		} else if got := f.Errors[0].Column; got != want {
			t.Errorf("%s: column %d, want %d: %s", header, got, want, f.Errors[0].Msg)
		}
	}
}

// TestBytesOfContents has what a backslash may stand before.
func TestBytesOfContents(t *testing.T) {
	for text, want := range map[string]string{`a\|b`: "a|b", `\"\;\:\\`: `";:\`, `|41 42|c|43|`: "ABcC", `| 4 1 |`: "A"} {
		if c := one(t, `content:"`+text+`";`).Parts[0].Tests[0].Content; string(c.Bytes) != want {
			t.Errorf("%s: %q, want %q", text, c.Bytes, want)
		}
	}
	for _, text := range []string{`a\`, `\a`, `\x41`, `|4|`, `|4`, `||`, ``} {
		if _, err := parseContent(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	for text, want := range map[string]string{`a\`: `a\`, `\;\"`: `;"`, `a\b`: "ab"} {
		if got := unescape(text); got != want {
			t.Errorf("%q unescaped: %q, want %q", text, got, want)
		}
	}
}

// TestSetsOfAddressesAndPorts has lists whose elements touch, lie in one another, and end where the whole ends.
func TestSetsOfAddressesAndPorts(t *testing.T) {
	env := (&Config{}).environment()
	for text, want := range map[string]string{
		"[1,2]": "1-2", "[1,3]": "1-1 3-3", "[10:20,12:13]": "10-20", "[1:5,[4,9]]": "1-5 9-9", "[!0]": "1-65535", "[!65535]": "0-65534",
		"!1000:": "0-999", "[:10,!5]": "0-4 6-10", "[80,!80]": "", "[!1,!2]": "0-0 3-65535", "65535:": "65535-65535", "![!7]": "7-7", "7:7": "7-7",
	} {
		s, err := env.portList(text)
		var got []string
		if err == nil {
			for _, r := range s.ranges {
				got = append(got, fmt.Sprintf("%d-%d", r.first, r.last))
			}
		}
		if g := strings.Join(got, " "); g != want || err != nil {
			t.Errorf("ports %s: %s, want %s; %v", text, g, want, err)
		}
	}
	for _, text := range []string{"5:4", "-1", "65536", "", "[]", "[1", "1:2:3", ":", "a"} {
		if s, err := env.portList(text); err == nil && text != ":" {
			t.Errorf("ports %s: %v", text, s)
		}
	}
	for text, want := range map[string]string{
		"192.0.2.1-192.0.2.9":                          "192.0.2.1-192.0.2.9",
		"192.0.2.0/255.255.255.0":                      "192.0.2.0-192.0.2.255",
		"[192.0.2.0/24,192.0.2.7]":                     "192.0.2.0-192.0.2.255",
		"[192.0.2.0/25,192.0.2.128/25]":                "192.0.2.0-192.0.2.255",
		"[192.0.2.7,192.0.2.7-192.0.2.7]":              "192.0.2.7-192.0.2.7",
		"[2001:db8::/32,!2001:db8::]":                  "2001:db8::1-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
		"!::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "::-::",
		"!::": "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	} {
		s, err := env.addrList(text)
		var got []string
		if err == nil {
			s.Each(func(first, last netip.Addr) { got = append(got, first.Unmap().String()+"-"+last.Unmap().String()) })
		}
		if g := strings.Join(got, " "); g != want || err != nil {
			t.Errorf("addresses %s: %s, want %s; %v", text, g, want, err)
		}
	}
	for _, text := range []string{"192.0.2.9-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.0/255.0.255.0", "192.0.2.0/33", "192.0.2.0/2001:db8::", "x"} {
		if s, err := env.addrList(text); err == nil {
			t.Errorf("addresses %s: %v", text, s)
		}
	}
	deep := func(n int) string { return strings.Repeat("[", n) + "7" + strings.Repeat("]", n) }
	if _, err := env.portList(deep(maxDepth)); err != nil {
		t.Error(err)
	}
	if _, err := env.portList(deep(maxDepth + 1)); err == nil {
		t.Error("a list too deep is taken")
	}
}

// TestLinesThatGoOn has the places of errors in rules of several lines, with and without a carriage return.
func TestLinesThatGoOn(t *testing.T) {
	for _, end := range []string{"\n", "\r\n"} {
		text := strings.Join([]string{`alert tcp any any -> any any \`, `(msg:"x"; \`, `nope; \`, `sid:7;)`, `alert tcp any any -> any any (sid:8`}, end) + end
		f := Parse("test", text, nil)
		if len(f.Errors) < 2 {
			t.Fatal(f.Errors)
		}
		if e := f.Errors[0]; e.Line != 3 || e.Column != 1 || e.Source != "nope; " {
			t.Errorf("%d:%d %q: %s", e.Line, e.Column, e.Source, e.Msg)
		}
		if e := f.Errors[1]; e.Line != 5 || e.Column != 31 || strings.HasSuffix(e.Source, "\r") {
			t.Errorf("%d:%d %q: %s", e.Line, e.Column, e.Source, e.Msg)
		}
	}
}
