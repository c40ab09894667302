package wire

import "testing"

// TestMarkCE marks each code point (RFC 3168 5): only ECT(0) and ECT(1) become CE, and checksums stay right.
func TestMarkCE(t *testing.T) {
	for _, e := range []ECN{NotECT, ECT0, ECT1, CE} {
		want := e == ECT0 || e == ECT1
		after := e
		if want {
			after = CE
		}
		v4 := IPv4(AppendIPv4(nil, &IPv4Header{TTL: 64}))
		v4.SetECN(e)
		v4.FillChecksum()
		if got := v4.MarkCE(); got != want || v4.ECN() != after || !v4.ChecksumOK() {
			t.Errorf("IPv4, %v: %v, then %v, checksum right %v", e, got, v4.ECN(), v4.ChecksumOK())
		}
		v6 := IPv6(AppendIPv6(nil, &IPv6Header{HopLimit: 64}))
		v6.SetECN(e)
		if got := v6.MarkCE(); got != want || v6.ECN() != after {
			t.Errorf("IPv6, %v: %v, then %v", e, got, v6.ECN())
		}
	}
}
