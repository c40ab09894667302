package aead

import "github.com/millrace/millrace/packet"

// TagSize is the size in bytes of the tag behind each text. RFC 8221 5 requires it of AES-GCM in ESP. There are no shorter
// ones.
const TagSize = 16

// Algorithm names an algorithm with its key size.
type Algorithm uint8

// The algorithms. The CBC ones are ESP's pairs of encryption and integrity (RFC 3602, RFC 4868 with 128 bits of tag): a text
// is a whole number of 16-byte blocks, its padding is the caller's, and the nonce is the IV, which must be unpredictable. Their
// associated data is the header in the order of RFC 4106 5, SPI and sequence number: 8 bytes, or 12 with the high half of an
// extended sequence number in the middle, which they authenticate behind the text (RFC 4303 2.2.1).
const (
	ChaCha20Poly1305 Algorithm = 1 + iota // RFC 8439, key of 32 bytes
	AES128GCM                             // NIST SP 800-38D, key of 16 bytes
	AES256GCM                             // key of 32 bytes
	AES128CBCSHA256                       // key of 16 + 32 bytes: AES, then HMAC-SHA-256
	AES256CBCSHA256                       // key of 32 + 32 bytes
	algorithms
)

var algorithmNames = [algorithms]string{
	"none", "chacha20-poly1305", "aes128-gcm", "aes256-gcm", "aes128-cbc-sha256", "aes256-cbc-sha256",
}

func (a Algorithm) String() string {
	if a >= algorithms {
		return "unknown"
	}
	return algorithmNames[a]
}

// KeySize returns the bytes of a key, 0 for an unknown algorithm.
func (a Algorithm) KeySize() int {
	sizes := [...]int{
		ChaCha20Poly1305: 32, AES128GCM: 16, AES256GCM: 32, AES128CBCSHA256: 48, AES256CBCSHA256: 64, algorithms: 0,
	}
	return sizes[min(a, algorithms)]
}

// NonceSize returns the bytes of Op.Nonce that count.
func (a Algorithm) NonceSize() int {
	if a.cbc() {
		return 16
	}
	return 12
}

func (a Algorithm) cbc() bool { return a == AES128CBCSHA256 || a == AES256CBCSHA256 }

// Op is one text to seal or open: 40 bytes, no pointers, one layout for the CPU and a GPU.
//
//	 0               16     20    24    28    32      34     36
//	+---------------+------+-----+-----+-----+-------+------+------+
//	| Nonce         | Text | Len | AAD | Key | AADLen|Result| Packet|
//	+---------------+------+-----+-----+-----+-------+------+------+
type Op struct {
	Nonce  [16]byte // the first NonceSize bytes
	Text   uint32   // offset of the text in Batch.Mem; its tag is at Text+Len
	Len    uint32   // bytes of the text, without tag
	AAD    uint32   // offset of the associated data, outside of text and tag
	Key    uint32   // index in Batch.Keys
	AADLen uint16
	Result Result // written by Seal and Open
	_      uint8
	Packet uint32 // the caller's: for instance the index of the descriptor that the operation is of
}

// Result is the outcome of one operation.
type Result uint8

// The results. The texts of refused operations are as before.
const (
	Pending     Result = iota // not processed yet
	Done                      // sealed, or opened and verified
	Forged                    // Open: the tag does not verify; the text is overwritten with zeros
	NonceReused               // Seal: an earlier operation of the batch has this nonce and key
	BadRange                  // offsets leave the memory, or associated data overlaps the text
	BadLength                 // CBC: no whole number of blocks, or associated data of neither 8 nor 12 bytes
	BadKey                    // no such key, or a cleared one
	Torn                      // a GPU was lost in the middle of the text, which is overwritten with zeros
	results
)

var resultNames = [results]string{"pending", "done", "forged", "nonce reused", "bad range", "bad length", "bad key", "torn"}

func (r Result) String() string {
	if r >= results {
		return "unknown"
	}
	return resultNames[r]
}

// Batch is the work of a back end. The caller owns all of it, and reuses it. Offsets reach the first 4 GiB of the memory, as
// those of packet.Desc do. Operations that overlap one another have no defined result. The scheduler cannot interrupt a text:
// 0.1 ms for each MB.
type Batch struct {
	Mem  []byte
	Keys []*Key
	Ops  []Op
}

// Layout describes where a protocol has its parts in a packet, in bytes from the packet's first one.
type Layout struct {
	AAD, AADLen uint16
	Text        uint16 // the text goes from here to the tag, which ends the packet
}

// Op returns the operation for a packet of an arena whose memory is Batch.Mem. The packet ends with room for the tag. ok is
// false if it is too short for the layout, or not in one frame.
func (l Layout) Op(d *packet.Desc, key uint32) (op Op, ok bool) {
	end := int(d.Len) - TagSize
	if end < int(l.Text) || int(l.AAD)+int(l.AADLen) > int(d.Len) || d.Flags.Has(packet.FlagMore) {
		return Op{}, false
	}
	return Op{
		Text: d.Off + uint32(l.Text), Len: uint32(end) - uint32(l.Text),
		AAD: d.Off + uint32(l.AAD), AADLen: l.AADLen, Key: key,
	}, true
}

// text returns the text of an operation with its tag behind, and the associated data.
func (b *Batch) text(op *Op) (text, aad []byte) {
	end := uint64(op.Text) + uint64(op.Len) + TagSize
	aadEnd := uint64(op.AAD) + uint64(op.AADLen)
	return b.Mem[op.Text:end:end], b.Mem[op.AAD:aadEnd:aadEnd]
}
