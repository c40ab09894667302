package tcp

// Keys sign and verify the segments of a connection: TCP-MD5 (RFC 2385) or TCP-AO (RFC 5925).
type Keys struct {
	MD5 []byte  // password; nil for none
	AO  []AOKey // first: the one to send with
}

// AOKey is a master key tuple of TCP-AO (RFC 5925 3.1).
type AOKey struct {
	SendID, ReceiveID uint8
	Algorithm         AOAlgorithm
	Secret            []byte
	SkipOptions       bool // leave TCP options other than AO out of the MAC
}

// AOAlgorithm names the MAC and the key derivation of TCP-AO (RFC 5926).
type AOAlgorithm uint8

// Algorithms of RFC 5926.
const (
	AOSHA1   AOAlgorithm = iota // HMAC-SHA-1-96 with KDF_HMAC_SHA1
	AOAES128                    // AES-128-CMAC-96 with KDF_AES_128_CMAC
)
