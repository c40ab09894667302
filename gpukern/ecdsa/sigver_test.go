package ecdsa

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"math/big"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
)

// vector is a signature of NIST's with what the verification of a pass reads besides: 1/s, and the nonce's point, of which r has x.
type vector struct {
	key            *Key
	digest         []byte
	r, s, w, x, y  *big.Int
	valid, lifting bool // whether NIST takes it, and whether r is the x of a point
}

// newVector returns false for points that are not on the curve: keys of those cannot be made by crypto/ecdsa.
func newVector(t *testing.T, standard elliptic.Curve, c *Curve, r cavp.Record, digest []byte) (v vector, ok bool) {
	t.Helper()
	qx, qy := r.Number(t, "Qx"), r.Number(t, "Qy")
	public := append([]byte{4}, qx.FillBytes(make([]byte, c.size))...)
	public = append(public, qy.FillBytes(make([]byte, c.size))...)
	if _, err := ecdsa.ParseUncompressedPublicKey(standard, public); err != nil {
		return v, false
	}
	key, err := NewKey(c, make([]byte, c.size), public)
	if err != nil {
		t.Fatal(err)
	}
	v = vector{key: key, digest: digest, r: r.Number(t, "R"), s: r.Number(t, "S"), valid: strings.HasPrefix(r["Result"], "P")}
	v.w, v.x = new(big.Int).ModInverse(v.s, c.params.N), v.r
	// y^2 = x^3 - 3x + b
	square := new(big.Int).Exp(v.x, big.NewInt(3), c.params.P)
	square.Sub(square, new(big.Int).Mul(v.x, big.NewInt(3)))
	square.Mod(square.Add(square, c.params.B), c.params.P)
	v.y = new(big.Int).ModSqrt(square, c.params.P)
	v.lifting = v.y != nil
	return v, true
}

// put sets a lane of a pass, as the steps before its verification leave it, with one of the two points that r belongs to.
func (v *vector) put(p *Pass, negative bool) {
	lane, y := p.n, v.y
	if negative {
		y = new(big.Int).Sub(p.c.params.P, y)
	}
	p.Set(v.key, v.digest, make([]byte, 2*p.c.size))
	setLane(p.r, lane, p.c.n.digitsOf(v.r))
	setLane(p.s, lane, p.c.n.digitsOf(v.s))
	setLane(p.w, lane, p.c.n.digitsOf(v.w))
	setLane(p.x, lane, p.c.p.residue(v.x))
	setLane(p.y, lane, p.c.p.residue(y))
}

// verified reports whether a pass takes the signature with either point, and which.
func (v *vector) verified(c *Curve) (valid, negative bool) {
	for _, negative := range []bool{false, true} {
		p := NewPass(c)
		if v.put(p, negative); p.verify() {
			return true, negative
		}
	}
	return false, false
}

// TestCAVPOfVerification has NIST's vectors of right and forged signatures pass the verification of passes: alone, and a forged one
// among right ones.
func TestCAVPOfVerification(t *testing.T) {
	for standard, curve := range map[elliptic.Curve]func() *Curve{elliptic.P256(): P256, elliptic.P384(): P384} {
		var right, forged []vector
		name, c := standard.Params().Name, curve()
		for _, r := range cavp.Records(t, "SigVer.rsp") {
			section, hash, _ := strings.Cut(r["section"], ",")
			h, known := cavp.Hashes[strings.ReplaceAll(hash, "-", "")]
			if section != name || !known {
				continue
			}
			v, ok := newVector(t, standard, c, r, r.Digest(t, h))
			if !ok || !v.lifting {
				if v.valid {
					t.Errorf("%v: its points are not on the curve", r)
				}
				continue
			}
			if v.valid {
				right = append(right, v)
			} else {
				forged = append(forged, v)
			}
		}
		if len(right) < 4 || len(forged) < 8 {
			t.Fatalf("%s: %d signatures are right, %d forged", name, len(right), len(forged))
		}
		forms(t, func(t *testing.T) { verifyVectors(t, c, right, forged) })
	}
}

func verifyVectors(t *testing.T, c *Curve, right, forged []vector) {
	t.Helper()
	points := make([]bool, len(right))
	for i := range right {
		var valid bool
		if valid, points[i] = right[i].verified(c); !valid {
			t.Errorf("%s: signature %d is refused", c.params.Name, i)
		}
	}
	together := NewPass(c)
	for i := range Lanes {
		right[i%len(right)].put(together, points[i%len(right)])
	}
	if !together.verify() {
		t.Errorf("%s: eight right signatures are refused", c.params.Name)
	}
	for i := range forged {
		if valid, _ := forged[i].verified(c); valid {
			t.Errorf("%s: forged signature %d is taken", c.params.Name, i)
		}
		for _, negative := range []bool{false, true} {
			p := NewPass(c)
			for lane := range Lanes {
				if k := lane % len(right); lane == i%Lanes {
					forged[i].put(p, negative)
				} else {
					right[k].put(p, points[k])
				}
			}
			if p.verify() {
				t.Errorf("%s: forged signature %d is taken among right ones", c.params.Name, i)
			}
		}
	}
}
