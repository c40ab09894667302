package aead

import (
	"bytes"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
)

// TestCAVP seals and opens NIST's vectors of AES-GCM with nonces of 96 bits and tags of 128.
func TestCAVP(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		ran, forged := 0, 0
		for a, files := range map[Algorithm][]string{
			AES128GCM: {"gcmEncryptExtIV128.rsp", "gcmDecrypt128.rsp"}, AES256GCM: {"gcmEncryptExtIV256.rsp", "gcmDecrypt256.rsp"},
		} {
			for _, r := range append(cavp.Records(t, files[0]), cavp.Records(t, files[1])...) {
				if r["IVlen"] != "96" || r["Taglen"] != "128" {
					continue
				}
				k, err := NewKey(a, r.Bytes(t, "Key"))
				if err != nil {
					t.Fatal(err)
				}
				_, fails := r["FAIL"]
				aad, ct, tag, msg := r.Bytes(t, "AAD"), r.Bytes(t, "CT"), r.Bytes(t, "Tag"), r.Bytes(t, "PT")
				op := Op{AADLen: uint16(len(aad)), Text: uint32(len(aad)), Len: uint32(len(ct))}
				copy(op.Nonce[:], r.Bytes(t, "IV"))
				b := Batch{Keys: []*Key{k}, Ops: []Op{op}}
				want := Done
				if fails {
					want, msg = Forged, make([]byte, len(ct))
					forged++
				} else {
					b.Mem = slices.Concat(aad, msg, make([]byte, TagSize))
					if c.Seal(&b); !bytes.Equal(b.Mem, slices.Concat(aad, ct, tag)) {
						t.Errorf("%v: sealed %x", r, b.Mem)
					}
				}
				b.Mem = slices.Concat(aad, ct, tag)
				if c.Open(&b); b.Ops[0].Result != want || !bytes.Equal(b.Mem, slices.Concat(aad, msg, tag)) {
					t.Errorf("%v: %v, %x", r, b.Ops[0].Result, b.Mem)
				}
				ran++
			}
		}
		if ran < 200 || forged < 40 {
			t.Errorf("only %d vectors, %d forged", ran, forged)
		}
	})
}
