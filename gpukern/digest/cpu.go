package digest

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"

	"golang.org/x/crypto/blake2s"
)

// Form is an implementation of the functions on a CPU.
type Form uint8

// The forms, from slow to fast.
const (
	FormStandard Form = iota // crypto/*, hash/crc32 and golang.org/x/crypto
	FormAVX512               // SHA-256 in 16 lanes of 32 bits
	forms
)

var formNames = [forms]string{"standard", "avx512"}

func (f Form) String() string {
	if f >= forms {
		return "unknown"
	}
	return formNames[f]
}

// ErrForm is the error of a form that this machine cannot run.
var ErrForm = errors.New("digest: this machine does not have that form")

// CPU computes batches. It belongs to one loop, as it has scratch memory, which holds no secret between calls.
type CPU struct {
	form   [algorithms]Form
	hash   hash.Hash // SHA-256
	sum    [64]byte
	masked [mostHeader]byte
	lanes  sha256Lanes
}

// NewCPU returns a CPU with the fastest form for each algorithm.
func NewCPU() *CPU {
	c, _ := NewForm(forms - 1)
	return c
}

// NewForm returns a CPU with one form, and with FormStandard for algorithms that the form does not have. Tests and benchmarks
// compare forms by it. The error is ErrForm if the form has none; the CPU is valid nevertheless.
func NewForm(f Form) (*CPU, error) {
	c, err := &CPU{hash: sha256.New()}, ErrForm
	for a := range c.form {
		if f == FormStandard || has(f, Algorithm(a)) {
			c.form[a], err = f, nil
		}
	}
	return c, err
}

// Form returns the form that an algorithm has.
func (c *CPU) Form(a Algorithm) Form { return c.form[min(a, algorithms-1)] }

// Sum writes the sums of a batch, and returns how many have the result Done.
func (c *CPU) Sum(b *Batch) (done int) { return c.run(b, write) }

// Verify compares the sums of a batch with those in its memory, in a time that depends on neither, and returns how many
// have the result Done.
func (c *CPU) Verify(b *Batch) (done int) { return c.run(b, compare) }

// direction of a batch.
type direction uint8

const (
	write direction = iota
	compare
)

// SumPending is Sum for a batch that Validate has seen: it does what is Pending. So several loops can have parts of a batch.
func (c *CPU) SumPending(b *Batch) (done int) { return c.runPending(b, write, len(b.Ops)) }

// VerifyPending is Verify for a batch that Validate has seen.
func (c *CPU) VerifyPending(b *Batch) (done int) { return c.runPending(b, compare, len(b.Ops)) }

func (c *CPU) run(b *Batch, d direction) (done int) { return c.runPending(b, d, b.Validate()) }

// runPending does the operations that are Pending, of which there are so many at most.
func (c *CPU) runPending(b *Batch, d direction, pending int) (done int) {
	if pending > fewLanes && c.Form(b.Algorithm) == FormAVX512 {
		done = c.lanes.run(c, b, d)
	} else {
		done = c.standard(b, d)
	}
	clear(c.sum[:])
	return done
}

// standard does the operations that are Pending one by one with the standard library.
func (c *CPU) standard(b *Batch, d direction) (done int) {
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.Result != Pending {
			continue
		}
		c.standardSum(b, op)
		if op.Result = b.finish(op, d, &c.sum); op.Result == Done {
			done++
		}
	}
	if b.Algorithm == HMACSHA256 {
		clearHash(c.hash)
	}
	return done
}

// finish writes or compares a sum.
func (b *Batch) finish(op *Op, d direction, sum *[64]byte) Result {
	_, place := b.data(op)
	if d == write {
		copy(place, sum[:])
		return Done
	}
	if subtle.ConstantTimeCompare(place, sum[:len(place)]) != 1 {
		return Wrong
	}
	return Done
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// standardSum computes one sum.
func (c *CPU) standardSum(b *Batch, op *Op) {
	data, _ := b.data(op)
	switch b.Algorithm {
	case SHA256:
		sum := sha256.Sum256(data)
		copy(c.sum[:], sum[:])
	case SHA512:
		c.sum = sha512.Sum512(data)
	case BLAKE2s:
		sum := blake2s.Sum256(data)
		copy(c.sum[:], sum[:])
	case HMACSHA256:
		b.Keys[op.Key].standard(c.hash, &c.sum, data)
	case CRC32C:
		binary.LittleEndian.PutUint32(c.sum[:], crc32.Checksum(data, castagnoli))
	case ICRC:
		binary.LittleEndian.PutUint32(c.sum[:], icrc(data, &c.masked))
	}
}
