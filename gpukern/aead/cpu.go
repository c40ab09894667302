package aead

import "errors"

// Form is an implementation of the algorithms on a CPU.
type Form uint8

// The forms, from slow to fast.
const (
	FormStandard Form = iota // crypto/* and golang.org/x/crypto
	FormAVX512               // assembly over 512 bits: VAES, VPCLMULQDQ, IFMA
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
var ErrForm = errors.New("aead: this machine does not have that form")

// CPU seals and opens batches. It belongs to one loop, as it has scratch memory, which holds no secret between calls.
type CPU struct {
	form   [algorithms]Form
	valid  Validator
	chacha chachaBatch
	tag    [TagSize]byte
}

// NewCPU returns a CPU with the fastest form for each algorithm.
func NewCPU() *CPU {
	c, _ := NewForm(forms - 1)
	return c
}

// NewForm returns a CPU with one form, and with FormStandard for algorithms that the form does not have. Tests and benchmarks
// compare forms by it. The error is ErrForm if the form has none; the CPU is valid nevertheless.
func NewForm(f Form) (*CPU, error) {
	c, err := &CPU{}, ErrForm
	for a := range c.form {
		if f == FormStandard || has(f, Algorithm(a)) {
			c.form[a], err = f, nil
		}
	}
	return c, err
}

// Form returns the form that an algorithm has.
func (c *CPU) Form(a Algorithm) Form { return c.form[a] }

// Seal encrypts the texts of a batch in place, writes their tags, and returns how many have the result Done.
func (c *CPU) Seal(b *Batch) (done int) {
	c.valid.ForSeal(b)
	return c.run(b, seal)
}

// Open verifies the tags of a batch and decrypts its texts in place, and returns how many have the result Done.
func (c *CPU) Open(b *Batch) (done int) {
	c.valid.ForOpen(b)
	return c.run(b, open)
}

// SealPending is Seal for a batch that a Validator has seen: it does what is Pending. So several loops can have parts of a batch.
func (c *CPU) SealPending(b *Batch) (done int) { return c.run(b, seal) }

// OpenPending is Open for a batch that a Validator has seen.
func (c *CPU) OpenPending(b *Batch) (done int) { return c.run(b, open) }

// direction of a batch.
type direction uint8

const (
	seal direction = iota
	open
)

// run does the operations that are Pending.
func (c *CPU) run(b *Batch, d direction) (done int) {
	chacha := false
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.Result != Pending {
			continue
		}
		k := b.Keys[op.Key]
		switch {
		case c.form[k.algorithm] == FormStandard:
			op.Result = k.standard(d, op, b)
		case k.algorithm == ChaCha20Poly1305: // shares passes with others
			done += c.chacha.add(b, i, d)
			chacha = true
			continue
		default:
			op.Result = k.wideGCM(d, op, b, &c.tag)
		}
		if op.Result == Done {
			done++
		}
	}
	if chacha {
		done += c.chacha.flush(b, d)
		c.chacha.clear()
	}
	c.tag = [TagSize]byte{}
	return done
}
