package quiclb

import "crypto/aes"

// halves are the two halves of a server ID and a nonce, each of n octets. When those have an odd
// number of octets together, the one in the middle is shared: its upper four bits are the last of
// left, its lower four the last of right's first octet, and the rest of both octets is zero.
type halves struct {
	left, right [aes.BlockSize]byte
	n           int
	odd         bool
}

// split returns the halves of text.
func split(text []byte) (h halves) {
	h.n, h.odd = (len(text)+1)/2, len(text)%2 == 1
	copy(h.left[:h.n], text)
	copy(h.right[:h.n], text[len(text)-h.n:])
	h.clearLeft()
	h.clearRight()
	return h
}

func (h *halves) clearLeft() {
	if h.odd {
		h.left[h.n-1] &= 0xf0
	}
}

func (h *halves) clearRight() {
	if h.odd {
		h.right[0] &= 0x0f
	}
}

// put writes the text that the halves are of.
func (h *halves) put(text []byte) {
	middle := h.left[h.n-1]
	copy(text, h.left[:h.n])
	copy(text[len(text)-h.n:], h.right[:h.n])
	if h.odd {
		text[h.n-1] = middle | h.right[0]
	}
}

// join completes a server ID that reaches into the right half.
func (h *halves) join(id *ServerID) {
	var text [MaxTogether + 1]byte
	length := 2 * h.n
	if h.odd {
		length--
	}
	h.put(text[:length])
	copy(id.octets[:id.length], text[:])
}

// round adds AES(expand(length, pass, from)) to the first octets of to, where expand is from, zeros,
// and in the last two octets the length and the pass.
func (c *Codec) round(to, from *[aes.BlockSize]byte, pass uint8, s *Scratch) {
	s.in = *from
	s.in[14], s.in[15] = uint8(c.length), pass
	c.block.Encrypt(s.out[:], s.in[:])
	for i := range (c.length + 1) / 2 {
		to[i] ^= s.out[i]
	}
}

// encrypt runs the four rounds.
func (c *Codec) encrypt(h *halves, s *Scratch) {
	for pass := uint8(1); pass <= 4; pass += 2 {
		c.round(&h.right, &h.left, pass, s)
		h.clearRight()
		c.round(&h.left, &h.right, pass+1, s)
		h.clearLeft()
	}
}

// decrypt runs the rounds backwards. The first round is only for the right half: when the server ID
// lies in the left one it is left out.
func (c *Codec) decrypt(h *halves, s *Scratch) {
	c.round(&h.left, &h.right, 4, s)
	h.clearLeft()
	c.round(&h.right, &h.left, 3, s)
	h.clearRight()
	c.round(&h.left, &h.right, 2, s)
	h.clearLeft()
	if c.serverID > c.length/2 {
		c.round(&h.right, &h.left, 1, s)
		h.clearRight()
	}
}
