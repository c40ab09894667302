package wire

import "testing"

func TestSumExampleOfRFC1071(t *testing.T) {
	b := []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}
	if got := Sum(b, 0); got != 0xddf2 {
		t.Fatalf("Sum = %#x, want 0xddf2 (RFC 1071 3)", got)
	}
}

func TestUpdate16ExampleOfRFC1624(t *testing.T) {
	if got := Update16(0xdd2f, 0x5555, 0x3285); got != 0 {
		t.Fatalf("Update16 = %#x, want 0 (RFC 1624 4)", got)
	}
}
