// Package qwen4exp is the network of the qwen4_exp family, written once against engine/ops: a wide residual
// of hyper-connected streams, Gated DeltaNet and gated attention with QSA selection, a mixture of experts in
// every layer, one hashed n-gram embedding (PLE), and an MTP draft head.
//
// What it promises: the promises of package engine, and that nothing of a size is hard-wired; every size
// comes from the checkpoint's config. What (network), how (ops) and where (state) stay apart: a block's file
// holds its equations, engine/ops holds the operations, state.go says whose memory is whose.
//
// Weights stay where they are stored. Those of a checkpoint are mapped; of a packed store the experts and n-gram rows
// come through engine/stream, into memory that budget.go shares out together with scratch and states.
//
// Symbols, with the config key they come from and the tensor that gives them a shape:
//
//	symbol  Go field      config key                     meaning
//	h       Hidden        hidden_size                    width of one stream; embed_tokens [V, h]
//	n       Streams       hc_count                       streams of the residual
//	W       Wide          n*h                            the wide residual, stream after stream
//	r       LowRank       hc_lowrank                     input_mix_weight_down [r, W]
//	V       Vocab         vocab_size                     lm_head [V, h]
//	L       Layers        num_hidden_layers              decoder layers
//	eps     Eps           rms_norm_eps                   of every norm but the unit norms of DeltaNet
//	Hk, dk  Delta.Hk,Dk   linear_num_key_heads, ..._dim  DeltaNet key heads
//	Hv, dv  Delta.Hv,Dv   linear_num_value_heads, ...    value head j uses key head j / (Hv/Hk)
//	C       Channels      2*Hk*dk + Hv*dv                in_proj_qkv [C, h]
//	K       Taps          linear_conv_kernel_dim         conv1d [C, K]
//	Hq, hd  Attn.Hq,Hd    num_attention_heads, head_dim  q_proj [Hq*2*hd, h]: per head q, then gate
//	Hkv     Attn.Hkv      num_key_value_heads            k_proj, v_proj [Hkv*hd, h]
//	rot     Rope.Rot      head_dim*partial_rotary_factor rotated dims of q, k and the indexer
//	Hi, di  Index         indexer_n_heads, ..._head_dim  index_qk_proj [(Hi+1)*di, h]: queries, then one key
//	c       Ratio         indexer_compress_ratio         tokens a block
//	B       Budget        indexer_budget                 visible tokens; B/c blocks
//	E, k    Experts,TopK  num_experts, ..._per_tok       routed experts, and how many a row takes
//	N, H    Ngram         ngram_size, heads_per_ngram    n-gram orders 2..N, H heads each
//	Kp      PLETaps       ple_conv_kernel_size           dilated by N
//
// T is the number of rows of a chunk, p the absolute position of a row, S the DeltaNet state [Hv, dk, dv].
//
// Start reading at network.go, then one block's file.
package qwen4exp
