package semantics

import "testing"

func TestNormalizeHost(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "a.example": "a.example", "A.Example": "a.example", "a.example.": "a.example", "A.EXAMPLE.": "a.example", "127.0.0.1": "127.0.0.1", "127.0.0.1.": "127.0.0.1",
		"[2001:db8::1]": "[2001:db8::1]", "[2001:DB8:0:0::1]": "[2001:db8::1]", "[::ffff:192.0.2.1]": "[::ffff:192.0.2.1]", "[::FFFF:c000:0201]": "[::ffff:192.0.2.1]",
		"a_b": "a_b", "a~": "a~", "a-": "a-", "-": "-", "xn--bcher-kva": "xn--bcher-kva", "XN--a-b": "xn--a-b", "1x2": "1x2", "0xg": "0xg", "0x1.a": "0x1.a", "0.0.0.0": "0.0.0.0",
		"255.255.255.255": "255.255.255.255", "1.2.3.4.a": "1.2.3.4.a", "1a": "1a",
	} {
		if got, ok := NormalizeHost(in); got != want || !ok {
			t.Errorf("%q: %q, %v; want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{
		".", "..", "a..", "a.example..", "A..", ".a", "a..b", "a%2e", "%61", "a,b", "a;b", "a!", "a*", "a+b", "a=b", "a&b", "$a", "'a'", "(a)", "a\xe3\x80\x82", "a:b", "a]",
		"xn--", "xn--a-", "XN--A-", "xn--a-.b", "b.xn--a-", "b.xn--a-.", "1", "0x7f.1", "0X7F.1", "0x", "a.0xff", "a.1", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.1000", "01.2.3.4",
		"1.2.3.00", "1.2.3.4..", "1..2.3", "0x1.2.3.4", "a.2.3.4", "999999999999999999999", "1.2.3.99999999999999999999",
	} {
		if got, ok := NormalizeHost(in); ok || got != "" {
			t.Errorf("%q: %q", in, got)
		}
	}
	for in, want := range map[string]string{"": "", "a": "a", "a.": "a", "a.:80": "a:80", "A.B.:": "A.B:", "[::1]:80": "[::1]:80", "a:80": "a:80"} {
		if got := WithoutRootDot(in, Host(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]bool{
		"": true, ":": true, ":0": true, ":80": true, ":00080": true, ":65535": true, ":65536": false, ":99999": false, ":000080": false, ":18446744073709551696": false,
	} {
		if got := IsPort(in); got != want {
			t.Errorf("port %q: %v", in, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, h := range []string{"a.example", "a.example.", "192.0.2.1", "[2001:db8::1]"} {
			if _, ok := NormalizeHost(h); !ok {
				t.Fatal(h)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The look that suffices for most names permits none that the close one refuses.
func TestPlainNamesAreNormal(t *testing.T) {
	const parts = "a.-0x1f~_%,A"
	b := make([]byte, 0, 8)
	plain := 0
	var all func(n int)
	all = func(n int) {
		if s := string(b); s != "" {
			switch p, normal := isPlainName(s), isNormalName(s); {
			case p && !normal:
				t.Fatalf("%q", s)
			case p:
				plain++
			}
		}
		for i := 0; n > 0 && i < len(parts); i++ {
			b = append(b, parts[i])
			all(n - 1)
			b = b[:len(b)-1]
		}
	}
	all(5)
	for _, s := range []string{"bench.example", "a", "shop-1.example.org", "a_b.c"} {
		if !isPlainName(s) {
			t.Errorf("%q needs a closer look", s)
		}
	}
	if plain < 1000 {
		t.Errorf("%d are plain", plain)
	}
}
