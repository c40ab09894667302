// Package appid recognises the application protocol of a flow by what its first packets contain, and reads what a flow says of
// itself before it is encrypted: server names, ALPN and JA4 of TLS and of QUIC, hosts of HTTP, names asked of DNS.
//
// A Flow takes the packets of one flow in their order of arrival. For each payload it asks the recognisers whose first byte it
// has, those of the usual port first, up to eight payloads of each direction. A port alone recognises nothing, and neither
// does an address. What a recogniser has refused once it is not asked again. Retransmitted segments are skipped; segments are
// not put in order, but for the ClientHello, which may span them.
//
// The Initial packets of a QUIC client are decrypted with the keys that anybody on the path can derive (RFC 9001, 5.2;
// RFC 9369, 3.3), and the ClientHello is put together from their CRYPTO frames, which may come in any order.
//
// Memory of a flow: 184 bytes and no allocation where there are no details; else its names, and up to 16 KiB while a
// ClientHello is not complete.
package appid
