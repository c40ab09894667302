package qpack

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The exchange of RFC 9204 Appendix B, from the decoder's side.
func TestAppendixB(t *testing.T) {
	d := NewDecoder(DecoderOptions{MaxCapacity: 220, MaxBlocked: 4})
	var s Section
	decode := func(stream uint64, section string, want bool, fields ...Field) {
		t.Helper()
		done, err := d.Decode(stream, unhex(t, section), &s)
		if err != nil || done != want || done && !slices.Equal(s.Fields, fields) {
			t.Fatalf("%v, %v, %v", done, err, s.Fields)
		}
	}
	instructions := func(p string, size uint64, entries ...string) {
		t.Helper()
		if err := d.Instructions(unhex(t, p)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := d.table.first; i < d.table.next; i++ {
			got = append(got, d.table.at(i).Name+"="+d.table.at(i).Value)
		}
		if d.table.size != size || !slices.Equal(got, entries) {
			t.Fatalf("table of %d bytes: %q; want %d: %q", d.table.size, got, size, entries)
		}
	}
	sends := func(want string) {
		t.Helper()
		if got := hex.EncodeToString(d.AppendStream(nil)); got != want {
			t.Fatalf("decoder stream %s, want %s", got, want)
		}
	}
	// B.1: a literal field line with a name reference.
	decode(0, "0000 510b 2f69 6e64 6578 2e68 746d 6c", true, Field{Name: ":path", Value: "/index.html"})
	sends("")
	// B.2: the dynamic table. The section arrives first.
	decode(4, "0381 10 11", false)
	instructions("3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468", 106,
		":authority=www.example.com", ":path=/sample/path")
	if stream, found := d.Unblocked(); !found || stream != 4 {
		t.Fatal("stream 4 is still blocked")
	}
	decode(4, "0381 10 11", true, Field{Name: ":authority", Value: "www.example.com"}, Field{Name: ":path", Value: "/sample/path"})
	sends("84")
	// B.3: a speculative insert.
	instructions("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565", 160,
		":authority=www.example.com", ":path=/sample/path", "custom-key=custom-value")
	sends("01")
	// B.4: a duplicate, and a stream that is cancelled.
	instructions("02", 217, ":authority=www.example.com", ":path=/sample/path", "custom-key=custom-value", ":authority=www.example.com")
	decode(8, "0500 80 c1 81", true,
		Field{Name: ":authority", Value: "www.example.com"}, Field{Name: ":path", Value: "/"}, Field{Name: "custom-key", Value: "custom-value"})
	if got := hex.EncodeToString(d.AppendStream(nil)); got != "88" {
		t.Fatalf("decoder stream %s", got)
	}
	d.Cancel(8)
	sends("48")
	// B.5: an insert that evicts.
	instructions("810d 6375 7374 6f6d 2d76 616c 7565 32", 215,
		":path=/sample/path", "custom-key=custom-value", ":authority=www.example.com", "custom-key=custom-value2")
	sends("01")
}

// The wrap-around of the Required Insert Count (RFC 9204 4.5.1.1).
func TestRequiredInsertCount(t *testing.T) {
	d := NewDecoder(DecoderOptions{MaxCapacity: 100})
	d.table.next = 10
	// The example of the RFC: 3 entries at most, 10 received: 4 means 9.
	if got, err := d.requiredInsertCount(4); err != nil || got != 9 {
		t.Errorf("%d, %v; want 9", got, err)
	}
	for encoded := uint64(1); encoded <= 6; encoded++ {
		got, err := d.requiredInsertCount(encoded)
		if err != nil || got%6+1 != encoded || got > 13 || got <= 7 {
			t.Errorf("%d: %d, %v", encoded, got, err)
		}
	}
	if _, err := d.requiredInsertCount(7); err == nil {
		t.Error("7 exceeds twice the entries")
	}
	d.table.next = 0
	for encoded := uint64(5); encoded <= 6; encoded++ {
		if got, err := d.requiredInsertCount(encoded); err == nil {
			t.Errorf("%d means %d before any insert", encoded, got)
		}
	}
	if got, err := d.requiredInsertCount(1); err == nil {
		t.Errorf("1 means %d before any insert", got)
	}
}
