// Package hpack is the integers, strings and Huffman code with which HTTP/2 and HTTP/3 compress fields.
//
// RFC: 7541 5.
package hpack
