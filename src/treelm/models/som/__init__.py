"""The syntactic ordered memory (Shen, Tan, Sordoni, Reddy & Courville 2021): eSOM and dSOM."""
