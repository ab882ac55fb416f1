// SPDX-License-Identifier: Apache-2.0
#include "traces/classify.h"

#include <gtest/gtest.h>

#include <span>

namespace tessera {
namespace {

using enum KernelClass;

struct Named {
  const char* name;
  KernelClass kernel_class;
  const char* precision;
};

// Names as profilers print them, some cut where they repeat themselves.
constexpr Named kTensorRt[] = {
    {"sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize256x128x32_stage3_warpsize4x2x1_tensor16x8x16", kGemm, "fp16"},
    {"sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize160x128x32", kGemm, "fp16"},
    {"sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage3_execute_kernel_trt", kGemm, "bf16"},
    {"sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x16", kGemm, "tf32"},
    {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8", kGemm, "fp32"},
    {"sm80_xmma_gemm_i8f32_i8i32_f32_tn_n_tilesize128x128x64", kGemm, "int8"},
    {"sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x256x64_fused", kGemm, "int8"},
    {"sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x64_stage3", kGemm, "fp8"},
    {"sm89_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize64x64x64_bias_f32_execute_kernel_trt", kGemm, "fp8"},
    {"sm90_xmma_gemm_e4m3f16_e4m3f32_f32_tn_n_tilesize64x128x128_warpgroupsize1x1x1", kGemm, "fp8"},
    {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", kGemm, "bf16"},
    {"sm80_xmma_sparse_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_sptensor16x8x32", kGemm, "fp16"},
    {"sm50_xmma_cublas_gemvx_f16f16_f32_f32_tn_n_int32_unit_n_launch_param16x16x16", kGemm, "fp16"},
    {"sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", kConvolution, "fp16"},
    {"sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs", kConvolution, "int8"},
    {"sm86_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", kConvolution, "tf32"},
    {"cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xe2m1", kGemm, "fp4"},
    {"cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_bf16_bf16_128x128x256_1x1x1_0_tnn_"
     "align32_o_vs16_bias_bf16_relu",
     kGemm, "fp4"},
    {"cutlass3x_sm100_bstensorop_s256x256x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x256x256_0_tnn_align32",
     kGemm, "fp4"},
    {"cutlass3x_sm120_bstensorop_s16832gemm_block_scaled_ue8m0xe4m3_ue8m0xe4m3_f32_bf16_bf16_128x128x128", kGemm,
     "fp8"},
    {"cutlass3x_sm100_bstensorop_s128x128x32gemm_block_scaled_ue8m0xe4m3_ue8m0xe2m1_f32_bf16_bf16", kGemm, "fp8"},
    {"_gemm_mha_v2", kAttention, ""},
    {"_gemm_mha_v2_0xbcebb264ff01c4c4f8078856729f8b7e", kAttention, ""},
    {"_gemm_mha_v2_myl0_172", kAttention, ""},
    {"fmha_v2_flash_attention_fp16_S_128_64_sm80_kernel_nl", kAttention, "fp16"},
    {"fmha_v2_flash_attention_e4m3_fp32_64_64_S_qkv_128_sm89_kernel", kAttention, "fp8"},
    {"__myl_DivCastErfCastAddMulMulResh", kElementwise, ""},
    {"__myl_AddCastMeanSubMul...", kNorm, ""},
    {"__myl_AddCastMeanSubMulMeanAddSqrtDivMulCastMulAdd_myl0_12", kNorm, ""},
    {"__myl_CastMulMeanAddSqrtDivMulCastMul_0x1bf16d8842a4ebf16a0c5d2f0a1b2c3d", kNorm, ""},
    {"__myl_ReshReshCastMulReplCast...", kConversion, ""},
    {"__myl_CastMulCast_myl0_3", kConversion, ""},
    {"__myl_MinMaxMulRounCast_myl0_8", kConversion, ""},
    {"__myl_MaxrSubExpSumDiv_myl0_9", kSoftmax, ""},
    {"__myl_SlicSiluSlicMul_myl0_4", kElementwise, ""},
    {"__myl_CastCastMulTanhMulAddMulMulCast_0xd884d884d884d884d884d884d884d884", kElementwise, ""},
    {"__myl_FcAddCast_myl0_7", kGemm, ""},
    {"__myl_CorrMulAddRelu_myl0_1", kConvolution, ""},
    {"__myl_Move_myl0_0", kCopy, ""},
    {"__myl_MoveConc_myl0_2", kCopy, ""},
    {"__myl_TranResh_myl0_6", kConversion, ""},
    {"__myl_MulSum_myl0_0", kReduction, ""},
    {"__myl_Topk_myl0_10", kOther, ""},
    {"__myl_AddCast_myl0_4", kElementwise, ""},
    {"genericReformat::copyVectorizedKernel<double, float, __half, true, false, 1>", kConversion, "fp16"},
    {"Reformatting CopyNode for Input Tensor 0 to /patch_embed/proj/Conv", kConversion, ""},
    {"{ForeignNode[/blocks.0/attn/MatMul.../blocks.0/norm1/Add_1]}", kUnknown, ""},
    {"PWN(/blocks.0/mlp/act/Erf)", kElementwise, ""},
    {"[trainStation1]", kOther, ""},
    {"/blocks.0/attn/qkv/MatMul_myl0_13", kGemm, ""},
    {"/blocks.0/attn/Softmax", kSoftmax, ""},
    {"/blocks.0/attn/Transpose_1", kConversion, ""},
    {"/blocks.0/norm1/Add_1", kNorm, ""},
    {"/patch_embed/proj/Conv", kConvolution, ""},
    {"/backbone/conv1/Conv + /backbone/relu/Relu", kConvolution, ""},
    {"backbone.conv1.weight + /backbone/conv1/_weight_quantizer/QuantizeLinear + /backbone/conv1/Conv", kConvolution,
     ""},
    {"/backbone/conv1/_input_quantizer/QuantizeLinear", kConversion, ""},
    {"/backbone/maxpool/MaxPool", kReduction, ""},
    {"/head/Unsqueeze_2", kUnknown, ""},
    {"Conv_0", kConvolution, ""},
    {"Conv_0 + Relu_1", kConvolution, ""},
    {"onnx::Conv_411 + Conv_12 + Relu_13", kConvolution, ""},
    {"ConvTranspose_88", kConvolution, ""},
    {"Relu_1", kElementwise, ""},
    {"MatMul_31 + Add_32", kGemm, ""},
    {"Convolution1_myl0_2", kConvolution, ""},
    {"MatrixMultiplication1_myl0_7", kGemm, ""},
    {"Pooling1_myl0_3", kReduction, ""},
};
constexpr Named kLibraries[] = {
    {"nvjet_sm90_hsh_192x192_64x4_2x1_v_bz_coopB_bias_TNN", kGemm, "fp16"},
    {"nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", kGemm, "fp16"},
    {"nvjet_sm90_hss_128x128_64x6_2x1_v_bz_TNN", kGemm, "fp16"},
    {"nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT", kGemm, "bf16"},
    {"nvjet_tst_64x24_64x16_4x1_v_bz_splitK_TNT", kGemm, "bf16"},
    {"nvjet_sm100_tst_256x128_64x5_2x2_2cta_h_bz_TNT", kGemm, "bf16"},
    {"nvjet_sm90_qqhsh_192x192_128x4_2x1_v_bz_coopB_bias_TNN", kGemm, "fp8"},
    {"nvjet_sm90_qqtst_128x256_128x4_2x1_v_bz_coopB_TNT", kGemm, "fp8"},
    {"nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT", kGemm, "fp8"},
    {"nvjet_qrtst_128x128_128x6_2x1_v_bz_TNT", kGemm, "fp8"},
    {"nvjet_ootst_128x192_256x6_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT", kGemm, "fp4"},
    {"nvjet_sm100_ootst_128x64_256x10_4x1_v_bz_TNT", kGemm, "fp4"},
    {"ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", kGemm, "fp16"},
    {"ampere_s16816gemm_bf16_64x64_sliced1x2_ldg8_stages_64x6_tn", kGemm, "bf16"},
    {"ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_64x4_tn", kGemm, "bf16"},
    {"ampere_h16816gemm_256x128_ldg8_stages_32x3_nn", kGemm, "fp16"},
    {"ampere_sgemm_32x128_tn", kGemm, "fp32"},
    {"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", kGemm, "fp16"},
    {"volta_fp16_sgemm_fp16_128x32_nn", kGemm, "fp32"},
    {"volta_dgemm_64x64_nn", kGemm, "fp64"},
    {"turing_int8_i8816gemm_int8_128x128_ldg16_stages_64x3_tn", kGemm, "int8"},
    {"void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, cublasGemvTensorStridedBatched<float const>>", kGemm,
     "fp32"},
    {"void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false, false>", kGemm, "fp16"},
    {"void gemvNSP_kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 1, 32, 4, 1024>", kGemm, "bf16"},
    {"void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, float, __half, true, false, false>", kReduction,
     "fp16"},
    {"void cublasLt::epilogue::impl::globalKernel<8, 32, float, __half, __half, float>", kElementwise, "fp16"},
    {"void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_nn_align8>(Params)", kGemm,
     "fp16"},
    {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_tn_align8>(Params)", kGemm,
     "bf16"},
    {"void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16>(Params)", kGemm, "int8"},
    {"cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4", kGemm, "tf32"},
    {"cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_nn_align4", kGemm, "tf32"},
    {"cutlass_80_simt_sgemm_128x64_8x5_tn_align1", kGemm, "fp32"},
    {"cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_tn_align8", kGemm, "fp16"},
    {"cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_128x128x64_2x1x1_0_tnn_align8_warpspecialized", kGemm,
     "fp16"},
    {"cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_e4m3_128x128x128_2x1x1_0_tnn_align16", kGemm, "fp8"},
    {"cutlass3x_sm90_tensorop_i64x128x32gemm_s8_s8_s32_s8_s8_128x128x128_2x1x1_0_tnn_align16", kGemm, "int8"},
    {"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::"
     "collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>, cutlass::float_e4m3_t>>>",
     kGemm, "fp8"},
    {"void cutlass::device_kernel<DeviceGemmFp4GemmSm100<cutlass::nv_float4_t<cutlass::float_e2m1_t>>>", kGemm, "fp4"},
    {"void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128_32x5_nhwc_align8>",
     kConvolution, "fp16"},
    {"void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true>", kConversion, "fp16"},
    {"void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true, false>", kConversion, "fp16"},
    {"void cudnn::cnn::im2col4d_kernel<float, long>", kConversion, "fp32"},
    {"void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>", kConvolution, "fp32"},
    {"void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>", kConvolution, "fp32"},
    {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<__half, float, int, 512, true, 1, true>", kNorm, "fp16"},
    {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
     kAttention, "fp16"},
    {"cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f8_knob_3_kernel0_0", kAttention, "fp8"},
    {"void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>>(Flash_fwd_params)",
     kAttention, "fp16"},
    {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 32, 4, cutlass::bfloat16_t>"
     ">",
     kAttention, "bf16"},
    {"void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, cutlass::bfloat16_t>>",
     kAttention, "bf16"},
    {"void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<CollectiveMainloopFwdSm90<2, "
     "cutlass::float_e4m3_t, float>, cutlass::bfloat16_t>>>",
     kAttention, "fp8"},
    {"void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cutlass::bfloat16_t>>>",
     kAttention, "bf16"},
    {"void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<__half, __half, __half>>",
     kAttention, "fp16"},
    {"void flashinfer::BatchDecodeWithPagedKVCacheKernel<1, 2, 8, __nv_bfloat16>", kAttention, "bf16"},
    {"void flashinfer::MergeStatesKernel<8, 16, __half>", kAttention, "fp16"},
    {"void flashinfer::norm::RMSNormKernel<8u, __half>(__half*, __half*, __half*)", kNorm, "fp16"},
    {"kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at_", kNorm, ""},
    {"fmhaSm100fKernel_QkvE4m3OBfloat16HQk128HV128PagedKvCausal", kAttention, "fp8"},
    {"fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>)", kAttention,
     "fp16"},
    {"fmha_cutlassF_bf16_aligned_64x128_rf_sm80(AttentionKernel)", kAttention, "bf16"},
    {"void qk_int_sv_f16_attn_kernel<128u, 64u, 32u, 64u, 128u, (DataType)1, __half>", kAttention, "int8"},
    {"void qk_int8_sv_f8_accum_f32_attn_inst_buf_kernel<__nv_bfloat16>", kAttention, "int8"},
    {"void QuantInt8Kernel<128u, 64u, 1u, true, false, __half>(__half*, __half*, signed char*, float*)", kConversion,
     "int8"},
    {"void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128>", kAttention, ""},
    {"kernel_unified_attention_2d", kAttention, ""},
    {"void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short, 128>", kAttention, ""},
    {"void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u, 1u, 128u, 128u, 128u>", kGemm, "fp8"},
    {"void marlin::Marlin<__half, 256, 1, 8, 8, 4, 8>(int4 const*, int4 const*, int4*)", kGemm, "fp16"},
    {"void marlin::Marlin<__nv_bfloat16, vllm::kU4B8, 256>(int4 const*)", kGemm, "bf16"},
    {"void cutlass::device_kernel<machete::MacheteKernelTemplate<cutlass::bfloat16_t, cutlass::vllm_uint4b8_t>>", kGemm,
     "bf16"},
    {"void awq::gemm_forward_4bit_cuda_m16nXk32<128>(int, __half*)", kGemm, "fp16"},
    {"void tensorrt_llm::kernels::cutlass_kernels::fpA_intB_gemm<__half, cutlass::uint4b_t>", kGemm, "fp16"},
    {"_w8a8_block_fp8_matmul", kGemm, "fp8"},
    {"fused_moe_kernel", kGemm, ""},
    {"bmm_E2m1_E2m1E2m1_Fp32_t128x8x512_et64x8_m128x8x64_swiGlu", kGemm, "fp4"},
    {"bmm_E2m1_E4m3E4m3_Fp32_t128x8x128_et64x8", kGemm, "fp8"},
    {"bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512_s3_et128x8_m128x8x32_cga1x1x1_16dp256b_TN", kGemm, "fp8"},
    {"bmm_MxE4m3_MxE2m1MxE2m1_Fp32_t128x8x512", kGemm, "fp4"},
    {"bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x512_s4_et128x16", kGemm, "fp8"},
    {"bmm_Bfloat16_Bfloat16MxE2m1_Fp32_t128x16x256", kGemm, "bf16"},
    {"_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x128x1_swiglu", kGemm, "bf16"},
    {"_p_matmul_ogs_NTT_fp16xfp16xmxfp4_64x128x128x1", kGemm, "fp16"},
    {"_p_matmul_ogs_NNT_bf16xfp8e4nvxmxfp4_128x256x128x1", kGemm, "fp8"},
    {"void mul_mat_q<(ggml_type)8, 64, 8, false>(char const*, char const*, int const*, float*)", kGemm, "int8"},
    {"void mul_mat_vec_q<(ggml_type)12, 1>(void const*, void const*, float*, int, int, int, int)", kGemm, "int8"},
    {"void mul_mat_vec<__half, __half, 1, 256>(__half const*, float const*, float*)", kGemm, "fp16"},
    {"void mul_mat_q_stream_k_fixup<(ggml_type)8, 64, 8, false>(int const*, float*)", kReduction, "fp32"},
    {"void soft_max_f32<true, 0, 0, float>(float const*, float const*, float*, int, int)", kSoftmax, "fp32"},
    {"void quantize_q8_1(float const*, void*, long, long)", kConversion, ""},
    {"void transformer_engine::cast_fp8_2D_kernel<false, false, transformer_engine::Empty, __nv_bfloat16>", kConversion,
     "fp8"},
    {"void transformer_engine::cast_mxfp8_2D_kernel<false, true, 1ul, 32ul, __nv_bfloat16, __nv_fp8_e4m3>", kConversion,
     "fp8"},
    {"void fp32_to_bf16_conversion_kernel(float const*, __nv_bfloat16*, long)", kConversion, "bf16"},
    {"DataTypeConversion", kConversion, ""},
    {"_fwd_kernel", kAttention, ""},
    {"_fwd_kernel_stage1", kAttention, ""},
    {"_fwd_grouped_kernel_stage2", kAttention, ""},
    {"_fwd_kernel_ep_scatter_1", kCopy, ""},
    {"_per_token_group_quant_fp8", kConversion, "fp8"},
    {"void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(c10::Float8_e4m3fn*, c10::BFloat16 const*)", kConversion,
     "fp8"},
    {"void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>(int, int, __nv_bfloat16 const*)", kConversion, "fp16"},
    {"void vllm::rotary_embedding_kernel<c10::BFloat16, true>", kElementwise, "bf16"},
    {"void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>", kElementwise, "bf16"},
    {"void vllm::reshape_and_cache_flash_kernel<unsigned short, unsigned short>", kCopy, ""},
    {"void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16>>", kNorm, "bf16"},
    {"void transformer_engine::cast_transpose_fused_kernel<__nv_bfloat16, __nv_fp8_e4m3>", kConversion, "fp8"},
    {"void transformer_engine::scaled_upper_triang_masked_softmax_warp_forward<__half, __half, float, 10>", kSoftmax,
     "fp16"},
    {"void onnxruntime::cuda::_UnaryElementWise<__half, float, onnxruntime::cuda::OP_Cast<__half, float>, 256, 4>",
     kConversion, "fp16"},
    {"void onnxruntime::cuda::_BinaryElementWiseSimple<true, true, __half, onnxruntime::cuda::OP_Add>", kElementwise,
     "fp16"},
    {"void onnxruntime::contrib::cuda::SkipLayerNormKernelSmall<__half, 192, 4>", kNorm, "fp16"},
    {"void onnxruntime::cuda::Transpose4DKernelParallelizeOneElementPerThread<2>", kConversion, ""},
    {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kOther, "bf16"},
};
constexpr Named kTorch[] = {
    {"Memset (Device)", kCopy, ""},
    {"Memcpy DtoD (Device -> Device)", kCopy, ""},
    {"[CUDA memset]", kCopy, ""},
    {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float, false>", kNorm, "fp16"},
    {"void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
     "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda(c10::Half)#1}, std::array<char*, 2ul> >",
     kElementwise, "fp16"},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >",
     kElementwise, "fp32"},
    {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, "
     "unsigned int, 3, 64, 64>",
     kCopy, ""},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps<c10::BFloat16>>>",
     kReduction, "bf16"},
    {"void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 8, false, false>", kSoftmax,
     "fp16"},
    {"void <unnamed>::softmax_warp_forward<float, float, float, (int)8, (bool)0, (bool)0>", kSoftmax, "fp32"},
    {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
     "{lambda()#3}, std::array<char*, 2ul>, 4, at::native::memory::LoadWithCast<1>, StoreWithCast<1> >",
     kConversion, ""},
    {"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_"
     "cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>",
     kCopy, "bf16"},
    {"void at::native::vectorized_elementwise_kernel<4, "
     "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>",
     kConversion, "bf16"},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)>",
     kConversion, "fp8"},
    {"void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::Half>, std::array<char*, 1ul> >",
     kCopy, "fp16"},
    {"void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::Half, long, unsigned int, 2, 2, -2, true>",
     kCopy, "fp16"},
    {"void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::Half, float>", kNorm, "fp16"},
    {"void at::native::(anonymous namespace)::cuda_scaled_mm_fp8_kernel", kGemm, "fp8"},
    {"void at_cuda_detail::cub::DeviceReduceKernel<Policy600, int*>", kReduction, ""},
    {"triton_poi_fused__scaled_mm__to_copy_clamp_div_gelu_t_view_3", kElementwise, ""},
    {"triton_poi_fused__scaled_mm__to_copy_clamp_div_t_transpose_view_1", kConversion, ""},
    {"triton_per_fused__scaled_mm__to_copy_add_clamp_div_native_layer_norm_t_view_7", kNorm, ""},
    {"triton_red_fused__scaled_mm__to_copy_add_cat_clamp_convolution_div_expand_native_layer_norm_t_transpose_view_2",
     kNorm, ""},
    {"triton_poi_fused_add_clone_native_layer_norm_select_view_9", kNorm, ""},
    {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", kNorm, ""},
    {"triton_per_fused__softmax_2", kSoftmax, ""},
    {"triton_poi_fused_mul_silu_split_1", kElementwise, ""},
    {"triton_poi_fused_add_3", kElementwise, ""},
    {"triton_poi_fused__to_copy_5", kConversion, ""},
    {"triton_red_fused__to_copy_abs_amax_clamp_div_4", kConversion, ""},
    {"triton_poi_fused_cat_0", kCopy, ""},
    {"triton_poi_fused_clone_transpose_6", kConversion, ""},
    {"triton_poi_fused_convolution_relu_2", kElementwise, ""},
    {"triton_red_fused_sum_1", kReduction, ""},
    {"triton_tem_fused_addmm_gelu_0", kGemm, ""},
    {"triton_tem_fused_mm_4", kGemm, ""},
    {"triton_tem_fused_convolution_2", kConvolution, ""},
    {"triton_tem_fused_flex_attention_0", kAttention, ""},
};
constexpr Named kOwn[] = {
    {"matmul/sm90_fp8", kGemm, "fp8"},
    {"matmul/sm90_fp8 128x256", kGemm, "fp8"},
    {"matmul/sm90_fp8_promoted 128x192", kGemm, "fp8"},
    {"matmul/sm90_f16", kGemm, "fp16"},
    {"matmul/sm90_int8", kGemm, "int8"},
    {"matmul/cpu", kGemm, ""},
    {"attention/sm90_stream_fp8", kAttention, "fp8"},
    {"attention/sm90_short", kAttention, "fp16"},
    {"norm/cuda_half", kNorm, "fp16"},
    {"map/cuda", kElementwise, ""},
    {"rotary/cuda", kElementwise, ""},
    {"reduce/cpu", kReduction, ""},
    {"copy/cuda", kCopy, ""},
    {"void tessera::sm90::gemm<tessera::sm90::GemmShape<128, 256, 128>, __nv_fp8_e4m3, __half>", kGemm, "fp8"},
    {"void tessera::sm90::stream_attention<tessera::sm90::StreamConfig<64, __half>>", kAttention, "fp16"},
    {"void tessera::(anonymous namespace)::normalise_rows<(tessera::Element)2, (tessera::Element)4, 3>", kNorm, ""},
    {"other", kOther, ""},
    {"Other", kOther, ""},
    {"OTHER", kOther, ""},
    {"anything else entirely", kUnknown, ""},
    {"", kUnknown, ""},
};

void expect_all(std::span<const Named> names) {
  const Rules rules = with_built_in({});
  for (const Named& n : names) {
    const Classified got = classify(n.name, rules);
    EXPECT_STREQ(name_of(got.kernel_class), name_of(n.kernel_class)) << n.name;
    EXPECT_EQ(got.precision, n.precision) << n.name;
  }
}

TEST(Classify, KernelsOfTensorRt) { expect_all(kTensorRt); }
TEST(Classify, KernelsOfLibraries) { expect_all(kLibraries); }
TEST(Classify, KernelsOfPyTorch) { expect_all(kTorch); }
TEST(Classify, OwnKernelsAndOthers) { expect_all(kOwn); }

// A rule after a wider one would be dead text: a name made from its pattern must get what the rule says.
TEST(Classify, EveryRuleOfTheProgramIsReached) {
  const Rules rules = with_built_in({});
  EXPECT_GE(rules.size(), 200u);
  for (const KernelRule& rule : rules) {
    std::string name = rule.pattern;
    for (char& c : name) {
      if (c == '*' || c == '?') c = '~';
    }
    const Classified got = classify(name, rules);
    EXPECT_EQ(got.kernel_class, rule.kernel_class.value_or(got.kernel_class)) << rule.pattern;
    EXPECT_TRUE(rule.precision.empty() || got.precision == rule.precision) << rule.pattern << ": " << got.precision;
  }
}

TEST(Classify, RulesOfTheUserComeFirst) {
  auto mine = parse_rules("# mine\n\nMy?Kernel* gemm fp4\n*gelu* norm -\n* - int8\n", "my.rules");
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  const Rules rules = with_built_in(*mine);
  EXPECT_EQ(classify("my kernel 7", rules).kernel_class, kGemm);
  EXPECT_EQ(classify("my kernel 7", rules).precision, "fp4");
  // Class of the user's line, precision of the next one that tells one.
  EXPECT_EQ(classify("fast_gelu_fp16", rules).kernel_class, kNorm);
  EXPECT_EQ(classify("fast_gelu_fp16", rules).precision, "int8");
  EXPECT_EQ(classify("nvjet_sm90_hsh_8", rules).kernel_class, kGemm);
}

TEST(Classify, BadRulesNameTheirLine) {
  const auto said = [](const char* text) { return parse_rules(text, "my.rules").status().message(); };
  EXPECT_EQ(said("a gemm fp8\n\nb gem fp8\n").substr(0, 11), "my.rules:3:");
  EXPECT_NE(said("b gem fp8").find("'gem' is no class of kernels; there are gemm, convolution"), std::string::npos);
  EXPECT_NE(said("b gemm f8").find("'f8' is no precision; there are fp64"), std::string::npos);
  EXPECT_NE(said("b gemm").find("has 2 words; want three"), std::string::npos);
  EXPECT_NE(said("void at::x gemm fp8").find("has 4 words; want three"), std::string::npos);
  EXPECT_TRUE(parse_rules("", "my.rules").ok());
}

TEST(Classify, LongNamesTakeNoLongTime) {
  const Rules rules = with_built_in({});
  const std::string name(1 << 16, 'a');
  EXPECT_EQ(classify(name, rules).kernel_class, kUnknown);
}

}  // namespace
}  // namespace tessera
