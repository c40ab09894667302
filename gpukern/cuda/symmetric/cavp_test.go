package symmetric

import (
	"bytes"
	"slices"
	"strconv"
	"testing"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/digest"
	"github.com/millrace/millrace/internal/testkit/cavp"
)

// TestCAVPOfGCM opens NIST's vectors of AES-GCM on the device, and seals those that are not forged.
func TestCAVPOfGCM(t *testing.T) {
	devices(t, 900, 900, func(t *testing.T, b *bed, _ int) {
		var opened, sealed aead.Batch
		var texts [][]byte
		var fails []bool
		var want []byte
		for a, files := range map[aead.Algorithm][]string{
			aead.AES128GCM: {"gcmEncryptExtIV128.rsp", "gcmDecrypt128.rsp"}, aead.AES256GCM: {"gcmEncryptExtIV256.rsp", "gcmDecrypt256.rsp"},
		} {
			for _, r := range append(cavp.Records(t, files[0]), cavp.Records(t, files[1])...) {
				if r["IVlen"] != "96" || r["Taglen"] != "128" {
					continue
				}
				k, err := aead.NewKey(a, r.Bytes(t, "Key"))
				if err != nil {
					t.Fatal(err)
				}
				aad, ct, tag, msg := r.Bytes(t, "AAD"), r.Bytes(t, "CT"), r.Bytes(t, "Tag"), r.Bytes(t, "PT")
				add := func(to *aead.Batch, text, tag []byte) {
					op := aead.Op{AAD: uint32(len(to.Mem)), AADLen: uint16(len(aad)), Text: uint32(len(to.Mem) + len(aad)), Len: uint32(len(text)), Key: uint32(len(to.Keys))}
					copy(op.Nonce[:], r.Bytes(t, "IV"))
					to.Mem, to.Keys, to.Ops = slices.Concat(to.Mem, aad, text, tag), append(to.Keys, k), append(to.Ops, op)
				}
				add(&opened, ct, tag)
				_, failed := r["FAIL"]
				if fails = append(fails, failed); failed {
					texts = append(texts, make([]byte, len(ct)))
					continue
				}
				texts = append(texts, msg)
				add(&sealed, msg, make([]byte, len(tag)))
				want = slices.Concat(want, aad, ct, tag)
			}
		}
		if len(opened.Ops) < 200 {
			t.Fatalf("%d vectors", len(opened.Ops))
		}
		b.Open(&opened)
		for i, op := range opened.Ops {
			if got := opened.Mem[op.Text:][:op.Len]; (op.Result == aead.Done) == fails[i] || !bytes.Equal(got, texts[i]) {
				t.Errorf("vector %d: %v, forged %v, %x", i, op.Result, fails[i], got)
			}
		}
		if b.Seal(&sealed); !bytes.Equal(sealed.Mem, want) {
			t.Error("texts are sealed otherwise than NIST says")
		}
		b.onDevice(t, len(opened.Ops)+len(sealed.Ops))
	})
}

// TestCAVPOfSHA256 has NIST's vectors of SHA-256 and HMAC-SHA-256.
func TestCAVPOfSHA256(t *testing.T) {
	devices(t, 300, 300, func(t *testing.T, b *bed, _ int) {
		sums, want := digest.Batch{Algorithm: digest.SHA256}, []byte{}
		for _, r := range append(cavp.Records(t, "SHA256ShortMsg.rsp"), cavp.Records(t, "SHA256LongMsg.rsp")...) {
			bits, _ := strconv.Atoi(r["Len"])
			at, msg := uint32(len(sums.Mem)), r.Bytes(t, "Msg")[:bits/8]
			want = slices.Concat(want, msg, r.Bytes(t, "MD"))
			sums.Mem = append(append(sums.Mem, msg...), make([]byte, 32)...)
			sums.Ops = append(sums.Ops, digest.Op{Data: at, Len: uint32(len(msg)), Sum: at + uint32(len(msg))})
		}
		if b.Sum(&sums); !bytes.Equal(sums.Mem, want) {
			t.Error("sums of SHA-256 are not NIST's")
		}
		macs := digest.Batch{Algorithm: digest.HMACSHA256}
		for _, r := range cavp.Records(t, "HMAC.rsp") {
			if r["L"] != "32" {
				continue
			}
			at, msg, mac := uint32(len(macs.Mem)), r.Bytes(t, "Msg"), r.Bytes(t, "Mac")
			macs.Mem = append(append(macs.Mem, msg...), mac...)
			macs.Keys = append(macs.Keys, digest.NewKey(r.Bytes(t, "Key")))
			macs.Ops = append(macs.Ops, digest.Op{Data: at, Len: uint32(len(msg)), Sum: at + uint32(len(msg)), SumLen: uint8(len(mac)), Key: uint32(len(macs.Ops))})
		}
		if n := b.Verify(&macs); n != len(macs.Ops) || n < 15 {
			t.Errorf("%d of %d codes verify", n, len(macs.Ops))
		}
		b.onDevice(t, len(sums.Ops)+len(macs.Ops))
	})
}
