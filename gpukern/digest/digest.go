package digest

// Algorithm names a function.
type Algorithm uint8

// The functions.
const (
	SHA256     Algorithm = 1 + iota // FIPS 180-4
	SHA512                          // FIPS 180-4
	BLAKE2s                         // RFC 7693, 32 bytes, no key
	HMACSHA256                      // RFC 2104, RFC 4231; operations have keys
	CRC32C                          // RFC 3385, little-endian as on the wire of iSCSI and SCTP
	ICRC                            // InfiniBand's invariant CRC in RoCEv2: the data is a packet from its IP header on
	algorithms
)

var algorithmNames = [algorithms]string{"none", "sha256", "sha512", "blake2s", "hmac-sha256", "crc32c", "icrc"}

func (a Algorithm) String() string {
	if a >= algorithms {
		return "unknown"
	}
	return algorithmNames[a]
}

// Size returns the bytes of a whole sum, 0 for an unknown algorithm.
func (a Algorithm) Size() int {
	return [...]int{SHA256: 32, SHA512: 64, BLAKE2s: 32, HMACSHA256: 32, CRC32C: 4, ICRC: 4, algorithms: 0}[min(a, algorithms)]
}

// Op is one function of one piece of data: 24 bytes, no pointers, one layout for the CPU and a GPU.
//
//	 0      4     8     12    16       17      18   20       24
//	+------+-----+-----+-----+--------+-------+----+--------+
//	| Data | Len | Sum | Key | SumLen |Result |    | Packet |
//	+------+-----+-----+-----+--------+-------+----+--------+
type Op struct {
	Data   uint32 // offset of the data in Batch.Mem
	Len    uint32 // bytes of it
	Sum    uint32 // offset of the sum, outside of the data
	Key    uint32 // index in Batch.Keys, of HMACSHA256
	SumLen uint8  // bytes of the sum that are written or compared, its first ones; 0 is all
	Result Result // written by Sum and Verify
	_      uint16
	Packet uint32 // the caller's: for instance the index of the descriptor that the operation is of
}

// Result is the outcome of one operation.
type Result uint8

// The results.
const (
	Pending   Result = iota // not processed yet
	Done                    // the sum is written, or right
	Wrong                   // Verify: another sum is there
	BadRange                // offsets leave the memory, the sum overlaps the data, or SumLen is more than the function has
	BadKey                  // HMACSHA256: no such key, or a cleared one
	BadPacket               // ICRC: no UDP over IPv4 without options or over IPv6, or too short for a base transport header
	results
)

var resultNames = [results]string{"pending", "done", "wrong", "bad range", "bad key", "bad packet"}

func (r Result) String() string {
	if r >= results {
		return "unknown"
	}
	return resultNames[r]
}

// Batch is the work of a back end. The caller owns all of it, and reuses it. Operations whose sums overlap the data of others
// have no defined result.
type Batch struct {
	Algorithm Algorithm
	Mem       []byte
	Keys      []*Key
	Ops       []Op
}

// Validate sets the result of each operation to Pending, or to why it cannot be done, and returns how many are Pending. Every
// back end begins with it, so that all refuse the same.
func (b *Batch) Validate() (pending int) { return b.Check(uint64(len(b.Mem)), 0, len(b.Ops)) }

// Check is Validate for the operations from one on up to another, in memory of that size, which may be a device's: Mem is not
// looked at, but for ICRC. Several loops can check parts of a batch.
func (b *Batch) Check(size uint64, from, to int) (pending int) {
	for i := from; i < to; i++ {
		op := &b.Ops[i]
		if op.Result = b.check(op, size); op.Result == Pending {
			pending++
		}
	}
	return pending
}

// check returns why an operation cannot be done in memory of that size, or Pending. It sets SumLen where it is 0.
func (b *Batch) check(op *Op, size uint64) Result {
	whole := b.Algorithm.Size()
	if op.SumLen == 0 {
		op.SumLen = uint8(whole)
	}
	data, end := uint64(op.Data), uint64(op.Data)+uint64(op.Len)
	sum, sumEnd := uint64(op.Sum), uint64(op.Sum)+uint64(op.SumLen)
	switch {
	case end > size, sumEnd > size, int(op.SumLen) > whole, whole == 0:
		return BadRange
	case data < sumEnd && sum < end:
		return BadRange
	case b.Algorithm == HMACSHA256 && (int64(op.Key) >= int64(len(b.Keys)) || !b.Keys[op.Key].ready()):
		return BadKey
	case b.Algorithm == ICRC && (end > uint64(len(b.Mem)) || !isRoCE(b.Mem[data:end])):
		return BadPacket
	}
	return Pending
}

// data returns the data of an operation, and the place of its sum.
func (b *Batch) data(op *Op) (data, sum []byte) {
	end := uint64(op.Data) + uint64(op.Len)
	return b.Mem[op.Data:end:end], b.Mem[op.Sum : uint64(op.Sum)+uint64(op.SumLen)]
}
