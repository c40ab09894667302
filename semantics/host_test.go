package semantics

import "testing"

func TestNormalizeHost(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "a.example": "a.example", "A.Example": "a.example", "a.example.": "a.example", "A.EXAMPLE.": "a.example", "127.0.0.1": "127.0.0.1", "127.0.0.1.": "127.0.0.1",
		"[2001:db8::1]": "[2001:db8::1]", "[2001:DB8:0:0::1]": "[2001:db8::1]", "[::ffff:192.0.2.1]": "[::ffff:192.0.2.1]", "[::FFFF:c000:0201]": "[::ffff:192.0.2.1]", "a%2e": "a%2e",
	} {
		if got, ok := NormalizeHost(in); got != want || !ok {
			t.Errorf("%q: %q, %v; want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{".", "..", "a..", "a.example..", "A.."} {
		if got, ok := NormalizeHost(in); ok {
			t.Errorf("%q: %q", in, got)
		}
	}
	for in, want := range map[string]string{"": "", "a": "a", "a.": "a", "a.:80": "a:80", "A.B.:": "A.B:", "[::1]:80": "[::1]:80", "a:80": "a:80"} {
		if got := WithoutRootDot(in, Host(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, h := range []string{"a.example", "a.example.", "[2001:db8::1]"} {
			if _, ok := NormalizeHost(h); !ok {
				t.Fatal(h)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
