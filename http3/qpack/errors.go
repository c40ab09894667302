package qpack

import "errors"

// Codes of RFC 9204 6, with which a connection is closed.
const (
	CodeDecompressionFailed uint64 = 0x200 // QPACK_DECOMPRESSION_FAILED
	CodeEncoderStreamError  uint64 = 0x201 // QPACK_ENCODER_STREAM_ERROR
	CodeDecoderStreamError  uint64 = 0x202 // QPACK_DECODER_STREAM_ERROR
	CodeExcessiveLoad       uint64 = 0x107 // H3_EXCESSIVE_LOAD (RFC 9114 8.1)
)

// Error is a violation of RFC 9204 by the peer. It ends the connection with Code.
type Error struct {
	Code uint64
	Text string
}

// Error describes the violation.
func (e *Error) Error() string { return "qpack: " + e.Text }

// ErrTooLarge reports a field section above DecoderOptions.MaxSectionSize. Only its message is lost: the
// decoder works on.
var ErrTooLarge = errors.New("qpack: the field section exceeds the limit")

func failed(text string) *Error  { return &Error{CodeDecompressionFailed, text} }
func encoder(text string) *Error { return &Error{CodeEncoderStreamError, text} }
func decoder(text string) *Error { return &Error{CodeDecoderStreamError, text} }

// Violations in field sections.
var (
	errCut         = failed("the field section is cut")
	errInteger     = failed("an integer exceeds 62 bits")
	errHuffman     = failed("a string is not in the Huffman code")
	errStatic      = failed("no such entry of the static table")
	errDynamic     = failed("no such entry of the dynamic table")
	errRequired    = failed("the Required Insert Count cannot be")
	errBase        = failed("the Base is negative")
	errBlocked     = failed("more streams are blocked than SETTINGS_QPACK_BLOCKED_STREAMS permits")
	errBeyond      = failed("a reference is not below the Required Insert Count")
	errStillBlocks = failed("the stream is blocked, and must be decoded after Unblocked")
)

// Violations on the encoder stream.
var (
	errStreamInteger  = encoder("an integer of an instruction exceeds 62 bits")
	errStreamHuffman  = encoder("a string of an instruction is not in the Huffman code")
	errStreamStatic   = encoder("an instruction names no entry of the static table")
	errStreamDynamic  = encoder("an instruction names no entry of the dynamic table")
	errStreamCapacity = encoder("the capacity exceeds SETTINGS_QPACK_MAX_TABLE_CAPACITY")
	errStreamEntry    = encoder("an entry exceeds the capacity of the table")
	errFlood          = &Error{CodeExcessiveLoad, "too many instructions without a field section"}
)

// Violations on the decoder stream.
var (
	errAckInteger   = decoder("an integer of an instruction exceeds 62 bits")
	errAckSection   = decoder("an acknowledgment of a field section that is not outstanding")
	errAckIncrement = decoder("an Insert Count Increment of zero or beyond what was inserted")
)
