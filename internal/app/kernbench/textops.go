package kernbench

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda/symmetric"
	"github.com/millrace/millrace/gpukern/digest"
)

// textSize is the size of the texts of symmetric operations, in bytes: the payload of a packet. textKeys are their keys.
const (
	textSize = 1408
	textKeys = 64
)

// textFrame holds a text with the place of its tag or sum behind it.
const textFrame = textSize + 64

// textRound is the operations of a call that fills the GPU: 92 MiB of texts.
const textRound = 1 << 16

var textCatalogue = []KeyOp{
	{Name: "chacha20-poly1305", Title: "texts of 1408 B sealed, RFC 8439", round: textRound, text: sealsOf(aead.ChaCha20Poly1305)},
	{Name: "aes128-gcm", Title: "texts of 1408 B sealed", round: textRound, text: sealsOf(aead.AES128GCM)},
	{Name: "aes256-gcm", Title: "texts of 1408 B sealed", round: textRound, text: sealsOf(aead.AES256GCM)},
	{Name: "sha256", Title: "texts of 1408 B hashed", round: textRound, text: sumsOf(digest.SHA256)},
	{Name: "hmac-sha256", Title: "codes of texts of 1408 B", round: textRound, text: sumsOf(digest.HMACSHA256)},
}

// texts returns n texts, each at the beginning of a frame.
func texts(n int) []byte {
	mem := make([]byte, n*textFrame)
	for i := range n {
		t := mem[i*textFrame:][:textSize]
		for k := range t {
			t[k] = byte(k*7 + i)
		}
	}
	return mem
}

// sealsOf makes loads of texts to seal. A result is right where another core opens it and finds the text.
func sealsOf(a aead.Algorithm) func(e *symmetric.Engine, n int) (*keyLoad, error) {
	return func(e *symmetric.Engine, n int) (*keyLoad, error) {
		b := aead.Batch{Mem: texts(n), Ops: make([]aead.Op, n)}
		for i := range textKeys {
			k, err := aead.NewKey(a, bytes.Repeat([]byte{byte(i + 1)}, a.KeySize()))
			if err != nil {
				return nil, fmt.Errorf("%v: %w", a, err)
			}
			b.Keys = append(b.Keys, k)
		}
		plain := bytes.Clone(b.Mem)
		for i := range b.Ops {
			b.Ops[i] = aead.Op{Text: uint32(i * textFrame), Len: textSize, Key: uint32(i % textKeys)}
			copy(b.Ops[i].Nonce[:], fmt.Sprintf("%012d", i))
		}
		part := func(from, to int) *aead.Batch { return &aead.Batch{Mem: b.Mem, Keys: b.Keys, Ops: b.Ops[from:to]} }
		return &keyLoad{
			n: n, close: nothing,
			gpu: func(n int) { e.Seal(part(0, n)) },
			core: func(from, to int) {
				c := aead.NewCPU()
				for at := from; at < to; at += 256 {
					c.Seal(part(at, min(at+256, to)))
				}
			},
			check: func(from, to int) (right int) {
				// A run seals what the one before left, in the same place, and the ciphers are streams: what opens is the text, or
				// the text sealed once.
				c, err := aead.NewForm(aead.FormStandard)
				if err != nil {
					return 0
				}
				done := part(from, to)
				once := aead.Batch{Mem: bytes.Clone(plain[from*textFrame : to*textFrame]), Keys: b.Keys, Ops: movedOps(done.Ops, from)}
				for i := range done.Ops {
					done.Ops[i].Result = aead.Pending
				}
				c.Open(done)
				c.Seal(&once)
				for i := range done.Ops {
					got, at := b.Mem[(from+i)*textFrame:][:textSize], i*textFrame
					if done.Ops[i].Result == aead.Done && (bytes.Equal(got, plain[(from+i)*textFrame:][:textSize]) || bytes.Equal(got, once.Mem[at:][:textSize])) {
						right++
					} else {
						copy(got, plain[(from+i)*textFrame:]) // forged texts are zeros
					}
					clear(b.Mem[(from+i)*textFrame+textSize:][:aead.TagSize])
				}
				return right
			},
		}, nil
	}
}

// movedOps returns operations whose texts lie in memory that begins with the text of operation from.
func movedOps(ops []aead.Op, from int) []aead.Op {
	moved := slices.Clone(ops)
	for i := range moved {
		moved[i].Text -= uint32(from * textFrame)
	}
	return moved
}

// sumsOf makes loads of texts to sum.
func sumsOf(a digest.Algorithm) func(e *symmetric.Engine, n int) (*keyLoad, error) {
	return func(e *symmetric.Engine, n int) (*keyLoad, error) {
		b := digest.Batch{Algorithm: a, Mem: texts(n), Ops: make([]digest.Op, n)}
		keys := make([][]byte, textKeys)
		for i := range keys {
			keys[i] = bytes.Repeat([]byte{byte(i + 1)}, 32)
			if a == digest.HMACSHA256 {
				b.Keys = append(b.Keys, digest.NewKey(keys[i]))
			}
		}
		for i := range b.Ops {
			b.Ops[i] = digest.Op{Data: uint32(i * textFrame), Len: textSize, Sum: uint32(i*textFrame + textSize)}
			if a == digest.HMACSHA256 {
				b.Ops[i].Key = uint32(i % textKeys)
			}
		}
		part := func(from, to int) *digest.Batch {
			return &digest.Batch{Algorithm: a, Mem: b.Mem, Keys: b.Keys, Ops: b.Ops[from:to]}
		}
		return &keyLoad{
			n: n, close: nothing,
			gpu: func(n int) { e.Sum(part(0, n)) },
			core: func(from, to int) {
				c := digest.NewCPU()
				for at := from; at < to; at += 256 {
					c.Sum(part(at, min(at+256, to)))
				}
			},
			check: func(from, to int) (right int) {
				for i := from; i < to; i++ {
					text, got := b.Mem[i*textFrame:][:textSize], b.Mem[i*textFrame+textSize:][:sha256.Size]
					h := sha256.New()
					if a == digest.HMACSHA256 {
						h = hmac.New(sha256.New, keys[i%textKeys])
					}
					h.Write(text)
					if bytes.Equal(h.Sum(nil), got) {
						right++
					}
					clear(got)
				}
				return right
			},
		}, nil
	}
}
