package inspect

import (
	"fmt"
	"strings"
	"testing"
)

// TestContentsMatchAsDocumented has facts of Suricata's user guide, "Payload Keywords": options, a payload, and
// whether they match.
func TestContentsMatchAsDocumented(t *testing.T) {
	for _, c := range []struct {
		options, payload string
		want             bool
	}{
		{`content:"abc";`, "xabcx", true},
		{`content:"ABC";`, "xabcx", false},
		{`content:"aBc"; nocase;`, "xAbCx", true},
		{`content:"|61 62 63|";`, "xabcx", true},
		{`content:!"abc";`, "xabx", true},
		{`content:!"abc";`, "xabcx", false},
		{`content:"def"; offset:3;`, "abcdef", true},
		{`content:"def"; offset:4;`, "abcdef", false},
		{`content:"abc"; depth:3;`, "abcdef", true},
		{`content:"bcd"; depth:3;`, "abcdef", false},
		{`content:"def"; offset:3; depth:3;`, "abcdef", true},
		{`content:"def"; offset:2; depth:3;`, "abcdef", false},
		{`content:!"abc"; offset:1; depth:3;`, "abcdef", true},
		{`content:"abc"; startswith;`, "abcdef", true},
		{`content:"bcd"; startswith;`, "abcdef", false},
		{`content:"def"; endswith;`, "abcdef", true},
		{`content:"def"; endswith;`, "def.def", true},
		{`content:"cde"; endswith;`, "abcdef", false},
		{`content:!"def"; endswith;`, "defabc", true},
		{`content:!"def"; endswith;`, "abcdef", false},
		{`content:"abc"; content:"def"; distance:0;`, "abcdef", true},
		{`content:"abc"; content:"def"; distance:1;`, "abcdef", false},
		{`content:"def"; content:"abc"; distance:0;`, "abcdef", false},
		{`content:"abc"; content:"def"; distance:-3;`, "abcdef", true},
		{`content:"abc"; content:"bcd"; distance:-2; within:3;`, "abcdef", true},
		{`content:"abc"; content:"def"; within:3;`, "abcdef", true},
		{`content:"abc"; content:"def"; within:4;`, "abcxdef", true},
		{`content:"abc"; content:"def"; within:3;`, "abcxdef", false},
		{`content:"abc"; content:"def"; distance:1; within:3;`, "abcxdef", true},
		{`content:"abc"; content:"def"; distance:1; within:3;`, "abcxxdef", false},
		{`content:"abc"; content:"abc"; distance:0; content:"def"; within:3;`, "abcabcabcdef", true}, // needs another abc
		{`content:"abc"; content:!"def"; within:3;`, "abcdef", false},
		{`content:"abc"; content:!"def"; within:3;`, "abcdefabcxyz", true}, // the second abc has no def behind
		{`content:"abc"; content:!"def"; distance:3;`, "abcdef", true},
		{`content:"abc"; isdataat:3,relative;`, "abcdef", true},
		{`content:"abc"; isdataat:4,relative;`, "abcdef", false},
		{`content:"def"; isdataat:!1,relative;`, "abcdef", true},
		{`content:"abc"; content:!"def"; isdataat:!1,relative;`, "abcdefg", true}, // it is about the content before it: no def at the end
		{`content:"abc"; content:!"def"; isdataat:!1,relative;`, "abcdef", false},
		{`content:"abc"; content:!"def"; isdataat:!1,relative;`, "abcxyz", true},
		{`pcre:"/def/"; isdataat:!1,relative;`, "abcdef", true},
		{`pcre:"/abc/"; isdataat:!1,relative;`, "abcdef", false},
		{`isdataat:5;`, "abcdef", true},
		{`isdataat:6;`, "abcdef", false},
		{`isdataat:!6;`, "abcdef", true},
		{`dsize:6;`, "abcdef", true},
		{`dsize:>6;`, "abcdef", false},
		{`dsize:5<>7;`, "abcdef", true},
		{`bsize:6; content:"abc";`, "abcdef", true},
		{`bsize:<6; content:"abc";`, "abcdef", false},
		{`pcre:"/a.c/";`, "xabcx", true},
		{`pcre:"/A.C/i";`, "xabcx", true},
		{`pcre:!"/a.c/";`, "xabcx", false},
		{`content:"abc"; pcre:"/^d/R";`, "abcdef", true},
		{`content:"abc"; pcre:"/^e/R";`, "abcdef", false},
		{`pcre:"/b./"; content:"d"; distance:0; within:1;`, "abcdef", true},
		{`pcre:"/b./"; content:"d"; distance:0; within:1;`, "bxbcd", true}, // needs another match
		{`pcre:"/(.)\1/";`, "abba", true},
		{`pcre:"/a(?=bc)/";`, "abc", true},
		{`byte_test:2,=,0x0102,1;`, "\x00\x01\x02", true},
		{`byte_test:2,=,0x0201,1,little;`, "\x00\x01\x02", true},
		{`byte_test:1,&,0x80,0;`, "\x81", true},
		{`byte_test:1,!&,0x80,0;`, "\x01", true},
		{`byte_test:1,>,5,0;`, "\x05", false},
		{`byte_test:1,>=,5,0;`, "\x05", true},
		{`byte_test:3,=,123,0,string,dec;`, "123", true},
		{`byte_test:4,=,255,0,string,hex;`, "0xff", true},
		{`byte_test:0,=,0,0,string,dec;`, "0", true}, // any number of digits
		{`byte_test:0,=,17,1,string,dec;`, "x17y", true},
		{`byte_test:0,=,17,1,string,dec;`, "x170", false},
		{`byte_test:0,=,0,0,string,dec;`, "x", false},
		{`byte_jump:0,0,string,dec; content:"xyz"; within:3;`, "2abxyz", true},
		{`byte_test:4,=,1,0;`, "\x00\x00\x01", false}, // too short
		{`content:"len"; byte_test:1,=,4,0,relative;`, "len\x04", true},
		{`byte_test:2,=,0x3,0,bitmask 0x0ff0;`, "\x00\x30", true},
		{`byte_jump:1,0; content:"xyz"; within:3;`, "\x02abxyz", true},
		{`byte_jump:1,0; content:"xyz"; within:3;`, "\x01abxyz", false},
		{`byte_jump:1,0,multiplier 2; content:"xyz"; within:3;`, "\x01abxyz", true},
		{`byte_jump:1,0,align; content:"xyz"; within:3;`, "\x02abcdxyz", true},
		{`byte_jump:1,0,post_offset -1; content:"xyz"; within:3;`, "\x03abxyz", true},
		{`byte_jump:1,2,from_beginning; content:"xyz"; within:3;`, "ab\x03xyz", true},
		{`byte_jump:0,0,from_end,post_offset -3; content:"xyz"; within:3;`, "abxyz", true},
		{`byte_jump:1,0; isdataat:!1,relative;`, "\x02ab", true},
		{`byte_jump:1,0;`, "\x03ab", false}, // behind the end
		{`byte_extract:1,0,n; content:"abc"; offset:n;`, "\x03xxabc", true},
		{`byte_extract:1,0,n; content:"abc"; offset:n;`, "\x04xxabc", false},
		{`byte_extract:1,0,n; content:"abc"; distance:0; within:n;`, "\x04xabc", true},
		{`byte_extract:1,0,n; content:"abc"; distance:0; within:n;`, "\x03xabc", false},
		{`byte_extract:1,0,n; byte_test:1,=,n,1;`, "\x07\x07", true},
		{`content:"k"; byte_extract:1,0,n,relative; content:"Z"; offset:n; depth:1;`, "k\x01.k\x05Z", true}, // only with the second value
		{`content:"k"; byte_math:bytes 1,offset 0,oper +,rvalue 1,result n,relative; content:"Z"; offset:n; depth:1;`, "k\x01.k\x04Z", true},
		{`pcre:"/x.*y|z/"; content:"m"; distance:0; content:"n"; distance:0; within:1;`, "x z mn y m.", true}, // the second match ends before the first
		{`byte_math:bytes 1,offset 0,oper +,rvalue 2,result n; byte_test:1,=,n,1;`, "\x05\x07", true},
		{`content:"b64:"; base64_decode:offset 0,relative; base64_data; content:"hello";`, "b64:aGVsbG8=", true},
		{`content:"b64:"; base64_decode:offset 0,relative; base64_data; content:"hello"; endswith;`, "b64:aGVsbG8h", false},
		{`to_lowercase; content:"abc";`, "xABCx", true},
		{`dotprefix; content:".abc"; startswith;`, "abc", true},
		{`to_md5; content:"|90 01 50 98 3c d2 4f b0 d6 96 3f 7d 28 e1 7f 72|";`, "abc", true},
		{`url_decode; content:"a b/c";`, "a+b%2fc", true},
		{`strip_whitespace; content:"abc";`, "a b\tc", true},
		{`compress_whitespace; content:"a b";`, "a  \tb", true},
	} {
		options := c.options
		if strings.HasPrefix(options, "to_") || strings.HasPrefix(options, "dotp") || strings.HasPrefix(options, "url_") || strings.HasPrefix(options, "strip") || strings.HasPrefix(options, "compress") {
			options = "pkt_data; " + options
		}
		l := newLab(t, options)
		l.udp(9, c.payload)
		if got := len(l.alerts) == 1; got != c.want || len(l.alerts) > 1 {
			t.Errorf("%s on %q: %d alerts, want %v", c.options, c.payload, len(l.alerts), c.want)
		}
	}
}

// TestDecoysHideNothing puts matches of other rules before the one that counts.
func TestDecoysHideNothing(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100, 1000, 10000} {
		var rules strings.Builder
		rules.WriteString("content:\"decoy\";\ncontent:\"the-one\";\n")
		decoys := strings.Repeat("decoy", n)
		if n <= 200 { // as many different rules
			for i := range n {
				fmt.Fprintf(&rules, "content:\"decoy%03d\";\n", i)
				decoys += fmt.Sprintf("decoy%03d", i)
			}
		}
		l := newLab(t, rules.String())
		text := decoys + "the-one"
		if len(text) < 60000 {
			l.udp(9, text)
			if got := strings.Count(" "+l.sids()+" ", " 2 "); got != 1 {
				t.Errorf("%d decoys in a packet: the rule behind them has %d alerts", n, got)
			}
		}
		l.alerts = nil
		l.tcp(9).open().send(true, text, 1400)
		if got := strings.Count(" "+l.sids()+" ", " 2 "); got != 1 {
			t.Errorf("%d decoys in a stream: the rule behind them has %d alerts", n, got)
		}
	}
}

// TestFirstPartsStayCandidates has the searched content in one segment and the others in later ones.
func TestFirstPartsStayCandidates(t *testing.T) {
	l := newLab(t, `alert tcp any any -> any any (content:"searched for"; content:"b"; distance:0; content:"c"; distance:0;)`)
	c := l.tcp(9).open()
	for range 100 {
		c.send(true, "searched for", 3)
	}
	l.want("before the end", "")
	c.send(true, "xx", 1).send(true, "b", 1).send(true, "yc", 1)
	l.want("at the end", "1")
	c.send(true, "b c searched for", 1)
	l.want("again, in another order", "1")
	c.send(true, "bc", 1)
	l.want("again", "1 1")
}
